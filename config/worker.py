"""What a worker process loads (`dramatiq config.worker`): Django, the broker and the actors."""

import os

import django

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
django.setup()

import dramatiq

import agentruntime.actors  # noqa: F401  (declares the actors on the broker)

broker = dramatiq.get_broker()
