"""The site's settings for a measurement: the same, with the benchmarks' graphs and little talk.

Read from the environment besides what the site reads: BENCH_INLINE (a process works off its own
runs although there is a Redis; the cache stays in Redis), BENCH_QUEUE (a queue apart from those of
other processes on the same Redis), BENCH_NO_WORKER (nothing works off runs by itself), RETAIL_DATA
and RETAIL_JOURNAL (paths).
"""

from config.settings import *  # noqa: F403
from config.settings import AGENTRUNTIME as SITE_RUNTIME
from config.settings import INSTALLED_APPS as SITE_APPS
from config.settings import LOGGING as SITE_LOGGING
from config.settings import env

# With DEBUG Django keeps every statement that it has run.
DEBUG = False
INSTALLED_APPS = [*SITE_APPS, "benchmarks"]
LOGGING = SITE_LOGGING | {
    "root": {"handlers": ["console"], "level": "WARNING"},
    # A worker says in this logger that it is ready.
    "loggers": SITE_LOGGING["loggers"]
    | {"dramatiq": {"level": "INFO"}, "dramatiq.worker": {"level": "WARNING"}},
}
if env.bool("BENCH_INLINE", default=False):
    REDIS_URL = None
AGENTRUNTIME = {**SITE_RUNTIME, "QUEUE_NAME": env.str("BENCH_QUEUE", default="agentruntime")}
RETAIL_DATA = env.str("RETAIL_DATA", default="")
RETAIL_JOURNAL = env.str("RETAIL_JOURNAL", default="")
if env.bool("BENCH_NO_WORKER", default=False):
    AGENTRUNTIME["EMBEDDED_WORKER"] = False
