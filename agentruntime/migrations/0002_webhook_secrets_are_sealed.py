from django.db import migrations, models

import agentruntime.models.webhook
from agentruntime.models.sealed import seal, unseal


def seal_all(apps, schema_editor):
    for row in apps.get_model("agentruntime", "WebhookEndpoint").objects.all():
        row.sealed_secret = seal(row.sealed_secret)
        row.sealed_previous = row.sealed_previous and seal(row.sealed_previous)
        row.save(update_fields=["sealed_secret", "sealed_previous"])


def open_all(apps, schema_editor):
    for row in apps.get_model("agentruntime", "WebhookEndpoint").objects.all():
        row.sealed_secret = unseal(row.sealed_secret) or ""
        row.sealed_previous = (row.sealed_previous and unseal(row.sealed_previous)) or ""
        row.save(update_fields=["sealed_secret", "sealed_previous"])


class Migration(migrations.Migration):
    dependencies = [("agentruntime", "0001_initial")]

    operations = [
        migrations.RenameField("webhookendpoint", "secret", "sealed_secret"),
        migrations.RenameField("webhookendpoint", "previous_secret", "sealed_previous"),
        migrations.AlterField(
            "webhookendpoint",
            "sealed_secret",
            models.CharField(
                max_length=300,
                default=agentruntime.models.webhook.new_sealed_secret,
                editable=False,
            ),
        ),
        migrations.AlterField(
            "webhookendpoint",
            "sealed_previous",
            models.CharField(max_length=300, blank=True, default="", editable=False),
        ),
        migrations.RunPython(seal_all, open_all),
    ]
