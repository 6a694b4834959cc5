"""The floor's tables as Django models; import only when Django is configured."""

# ruff: noqa: DJ008 - nobody looks at these rows

from __future__ import annotations

from django.db import models
from django.db.models.functions import Now


class Head(models.Model):
    """A thread's newest version."""

    thread = models.TextField(primary_key=True)
    version = models.BigIntegerField(default=0)
    next_node = models.TextField(default="")
    question = models.JSONField(null=True)
    changed_at = models.DateTimeField(db_default=Now())

    class Meta:
        app_label = "floor"
        db_table = "head"


class Checkpoint(models.Model):
    """The state at a version."""

    pk = models.CompositePrimaryKey("thread", "version")
    thread = models.TextField()
    version = models.BigIntegerField()
    state = models.JSONField()
    made_at = models.DateTimeField(db_default=Now())

    class Meta:
        app_label = "floor"
        db_table = "checkpoint"


class Message(models.Model):
    """One message of a conversation."""

    pk = models.CompositePrimaryKey("thread", "ordinal")
    thread = models.TextField()
    ordinal = models.BigIntegerField()
    role = models.TextField()
    content = models.TextField()
    made_at = models.DateTimeField(db_default=Now())

    class Meta:
        app_label = "floor"
        db_table = "message"


class Result(models.Model):
    """The recorded result of a tool call."""

    pk = models.CompositePrimaryKey("thread", "call")
    thread = models.TextField()
    call = models.TextField()
    value = models.JSONField()
    made_at = models.DateTimeField(db_default=Now())

    class Meta:
        app_label = "floor"
        db_table = "result"
