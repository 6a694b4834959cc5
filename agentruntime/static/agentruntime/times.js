// Moments in the reader's own time zone, and how long ago they were.
"use strict";

const clock = new Intl.DateTimeFormat(undefined, { timeStyle: "medium" });
const day = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "short" });
const ago = new Intl.RelativeTimeFormat(document.documentElement.lang, { numeric: "auto" });

function relative(moment) {
  const seconds = (moment - Date.now()) / 1000;
  if (Math.abs(seconds) < 45) return "just now";
  if (Math.abs(seconds) < 3600) return ago.format(Math.round(seconds / 60), "minute");
  if (Math.abs(seconds) < 86400) return ago.format(Math.round(seconds / 3600), "hour");
  return ago.format(Math.round(seconds / 86400), "day");
}

function showTimes() {
  for (const time of document.querySelectorAll("time[datetime]")) {
    const moment = new Date(time.dateTime);
    if ("clock" in time.dataset) time.textContent = clock.format(moment);
    else if ("local" in time.dataset) time.textContent = day.format(moment);
    else time.textContent = relative(moment);
    time.title = day.format(moment);
  }
}

showTimes();
setInterval(showTimes, 15000);
