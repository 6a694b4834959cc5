"""The page for any logged-in user: talk to an agent, see its runs live, answer its questions."""

from django.urls import path

from agentruntime.pages import changes, views

app_name = "pages"

urlpatterns = [
    path("", views.home, name="home"),
    path("threads/new/", changes.start, name="start"),
    path("threads/<uuid:thread_id>/", views.thread, name="thread"),
    path("threads/<uuid:thread_id>/live/", views.live, name="live"),
    path("threads/<uuid:thread_id>/send/", changes.send, name="send"),
    path("threads/<uuid:thread_id>/stop/", changes.stop, name="stop"),
    path(
        "threads/<uuid:thread_id>/questions/<uuid:interrupt_id>/answer/",
        changes.answer,
        name="answer",
    ),
]
