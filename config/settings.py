"""The site's settings: the environment is read here and nowhere else.

Variables: DATABASE_URL, DATABASE_POOL_SIZE, REDIS_URL, SECRET_KEY, SECRET_KEY_FALLBACKS, DEBUG,
HTTPS, ALLOWED_HOSTS, OPENAI_API_KEY, OPENAI_BASE_URL, ANTHROPIC_API_KEY, DEMO_MODEL. All have
defaults that run the demo on one machine. A bad value stops the start with a sentence that names
its variable.
"""

from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import environ
from django.core.exceptions import ImproperlyConfigured

BASE_DIR = Path(__file__).resolve().parent.parent

env = environ.Env()


# --- reading the environment -----------------------------------------------------------------


def read_flag(name: str, default: bool) -> bool:
    # Env.bool() takes every unknown word for "no"; a typing error would then switch a guard off.
    word = env.str(name, default="").strip().lower()
    if word in {"1", "true", "yes", "on"}:
        return True
    if word in {"0", "false", "no", "off"}:
        return False
    if word == "":
        return default
    raise ImproperlyConfigured(f"{name} must be true or false.")


def read_count(name: str, default: int) -> int:
    word = env.str(name, default="").strip() or str(default)
    if not word.isdecimal() or int(word) < 1:
        raise ImproperlyConfigured(f"{name} must be a whole number above zero.")
    return int(word)


def read_url(name: str, schemes: set[str], default: str = "") -> str:
    # The value is never repeated in the error: it may hold a password.
    word = env.str(name, default="").strip() or default
    if not word:
        return ""
    wanted = " or ".join(f"{scheme}://" for scheme in sorted(schemes))
    try:
        url = urlsplit(word)
    except ValueError:  # brackets that hold no address
        raise ImproperlyConfigured(f"{name} must be a URL with a host that can be read.") from None
    try:
        _ = url.port
    except ValueError:
        raise ImproperlyConfigured(f"{name} must have a port from 0 to 65535.") from None
    if url.scheme not in schemes or not word.startswith(f"{url.scheme}://"):
        raise ImproperlyConfigured(f"{name} must be a URL that begins with {wanted}.")
    return word


def read_hosts(name: str, default: list[str]) -> list[str]:
    hosts: list[str] = [host.strip() for host in env.list(name, default=default)]
    for host in hosts:
        # An IPv6 address stands in brackets; outside of them a colon begins a port.
        if "/" in host or ":" in host.rpartition("]")[2]:
            raise ImproperlyConfigured(
                f"{name} must hold names of hosts without scheme, port and path, not {host!r}."
            )
    return [host for host in hosts if host]


DEBUG = read_flag("DEBUG", default=True)
# Cookies and redirects insist on TLS outside the demo; a site behind plain HTTP says HTTPS=false.
HTTPS = read_flag("HTTPS", default=not DEBUG)

SECRET_KEY = env.str("SECRET_KEY", default="")
if not SECRET_KEY and not DEBUG:
    raise ImproperlyConfigured("SECRET_KEY must be set when DEBUG is false.")
# Good for a demo on one machine only, which is what DEBUG means here.
SECRET_KEY = SECRET_KEY or "django-insecure-demo-only-set-SECRET_KEY-for-anything-else"
SECRET_KEY_FALLBACKS = env.list("SECRET_KEY_FALLBACKS", default=[])

ALLOWED_HOSTS = read_hosts("ALLOWED_HOSTS", default=["localhost", "127.0.0.1", "[::1]"])

OPENAI_API_KEY = env.str("OPENAI_API_KEY", default="")
OPENAI_BASE_URL = read_url("OPENAI_BASE_URL", {"http", "https"})
ANTHROPIC_API_KEY = env.str("ANTHROPIC_API_KEY", default="")
DEMO_MODEL = env.str("DEMO_MODEL", default="")


# --- databases -------------------------------------------------------------------------------

POSTGRES_SCHEMES = {"postgres", "postgresql"}
SQLITE_DEFAULT = f"sqlite:///{BASE_DIR / 'db.sqlite3'}"


def database_from_environment() -> dict[str, Any]:
    url = read_url("DATABASE_URL", {"sqlite", *POSTGRES_SCHEMES}, default=SQLITE_DEFAULT)
    config = environ.Env.db_url_config(url)
    options = config.setdefault("OPTIONS", {})
    if config["ENGINE"] == "django.db.backends.postgresql":
        if not config["NAME"]:
            raise ImproperlyConfigured("DATABASE_URL must name a database after the host.")
        options |= postgres_options()
        # A pool keeps the connections; a second keeper would hold on to them while agents wait.
        config |= {"CONN_MAX_AGE": 0, "CONN_HEALTH_CHECKS": True}
    else:
        options |= SQLITE_OPTIONS
    return config


def postgres_options() -> dict[str, Any]:
    return {
        "pool": {
            "min_size": 0,
            "max_size": read_count("DATABASE_POOL_SIZE", default=8),
            # A request that gets none for so long is refused (503); a worker tries on. Less than
            # the patience of a transaction, which drops connections that were cut and begins anew.
            "timeout": 3,
            # The pool's own pauses between attempts double; after this it begins anew, so that a
            # server is found within seconds of coming back, however long it was away.
            "reconnect_timeout": 3,
        },
        # Values travel beside the statement, and plans are kept from the second use on: a step
        # repeats the same few statements. Not from the first: migrations send pairs of commands
        # in one statement, which cannot be prepared.
        "server_side_binding": True,
        "prepare_threshold": 1,
    }


SQLITE_OPTIONS = {
    # A transaction that means to write says so at its start, and waits its turn there instead of
    # failing half way.
    "transaction_mode": "IMMEDIATE",
    "timeout": 20,
    # Readers beside one writer; and a commit is on the disk when it returns.
    "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL;",
}

DATABASES = {"default": database_from_environment()}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"


# --- Redis: cache, live news, messages to workers ---------------------------------------------

REDIS_URL = read_url("REDIS_URL", {"redis", "rediss", "unix"}) or None

if REDIS_URL:
    CACHES = {
        "default": {
            "BACKEND": "django_redis.cache.RedisCache",
            "LOCATION": REDIS_URL,
            "OPTIONS": {
                # Never the default, which is pickle.
                "SERIALIZER": "django_redis.serializers.json.JSONSerializer",
                # A dead Redis is a slow site, not a broken one: the database has everything.
                "IGNORE_EXCEPTIONS": True,
                "SOCKET_CONNECT_TIMEOUT": 1,
                "SOCKET_TIMEOUT": 1,
            },
        }
    }
    DJANGO_REDIS_LOG_IGNORED_EXCEPTIONS = True
    CHANNEL_LAYERS = {
        "default": {
            "BACKEND": "channels_redis.pubsub.RedisPubSubChannelLayer",
            "CONFIG": {
                "hosts": [REDIS_URL],
                # Pub/sub ignores the database number; two sites on one server must not hear
                # each other.
                "prefix": f"asgi{urlsplit(REDIS_URL).path.replace('/', '-')}",
            },
        }
    }
else:
    CACHES = {"default": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"}}
    CHANNEL_LAYERS = {"default": {"BACKEND": "channels.layers.InMemoryChannelLayer"}}


# --- the two apps ----------------------------------------------------------------------------

# Every setting with its unit and default stands in agentruntime/conf.py; here is what differs.
AGENTRUNTIME: dict[str, Any] = {
    "OPENAI_API_KEY": OPENAI_API_KEY,
    "OPENAI_BASE_URL": OPENAI_BASE_URL,
    "ANTHROPIC_API_KEY": ANTHROPIC_API_KEY,
}
# The same for approvals.
APPROVALS: dict[str, Any] = {}


# --- Django ----------------------------------------------------------------------------------

INSTALLED_APPS = [
    "agentruntime",
    "agentruntime.demo",
    "approvals",
    # Without looking for admin pages at the start: workers show none, `config.urls` looks for them.
    "django.contrib.admin.apps.SimpleAdminConfig",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "rest_framework",
    "django_filters",
    "drf_spectacular",
    "drf_spectacular_sidecar",
    "knox",
]

MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    # Before everything that reads what came in.
    "agentruntime.middleware.JsonGate",
    "agentruntime.middleware.LoginGate",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
]

ROOT_URLCONF = "config.urls"
ASGI_APPLICATION = "config.asgi.application"

TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE_DIR / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ]
        },
    }
]

AUTH_PASSWORD_VALIDATORS = [
    {"NAME": f"django.contrib.auth.password_validation.{name}"}
    for name in (
        "UserAttributeSimilarityValidator",
        "MinimumLengthValidator",
        "CommonPasswordValidator",
        "NumericPasswordValidator",
    )
]
LOGIN_URL = "login"
LOGIN_REDIRECT_URL = "/"
LOGOUT_REDIRECT_URL = "login"

LANGUAGE_CODE = "en"
TIME_ZONE = "UTC"
USE_TZ = True

STATIC_URL = "static/"
# Files are served from where the apps keep them, so there is no step to forget before a start.
WHITENOISE_USE_FINDERS = True

SESSION_SERIALIZER = "django.contrib.sessions.serializers.JSONSerializer"

REST_FRAMEWORK = {
    "DEFAULT_AUTHENTICATION_CLASSES": [
        # The first one names the challenge: a caller without credentials gets 401, not 403.
        "agentruntime.tokens.ScopedTokenAuthentication",
        "rest_framework.authentication.SessionAuthentication",
    ],
    "DEFAULT_PERMISSION_CLASSES": [
        "rest_framework.permissions.IsAuthenticated",
        "agentruntime.permissions.HasScope",
    ],
    "DEFAULT_THROTTLE_CLASSES": ["agentruntime.throttles.ScopedRate"],
    "DEFAULT_PAGINATION_CLASS": "agentruntime.pagination.Newest",
    # JSON only, in and out; the gate of the middleware has read it before.
    "DEFAULT_PARSER_CLASSES": ["rest_framework.parsers.JSONParser"],
    "DEFAULT_RENDERER_CLASSES": ["rest_framework.renderers.JSONRenderer"],
    # What is answered is chosen by Accept alone.
    "URL_FORMAT_OVERRIDE": None,
    "DEFAULT_VERSIONING_CLASS": "rest_framework.versioning.NamespaceVersioning",
    "ALLOWED_VERSIONS": ["v1"],
    "EXCEPTION_HANDLER": "agentruntime.exceptions_http.exception_handler",
    "DEFAULT_SCHEMA_CLASS": "drf_spectacular.openapi.AutoSchema",
    "UNAUTHENTICATED_USER": "django.contrib.auth.models.AnonymousUser",
}

SPECTACULAR_SETTINGS = {
    "TITLE": "Agents",
    "DESCRIPTION": "Runs of agents, their events, and the people who decide.",
    "VERSION": "v1",
    "SERVE_INCLUDE_SCHEMA": False,
    "SWAGGER_UI_DIST": "SIDECAR",
    "SWAGGER_UI_FAVICON_HREF": "SIDECAR",
    "SCHEMA_PATH_PREFIX": "/api/v1",
    "COMPONENT_SPLIT_REQUEST": True,
    "POSTPROCESSING_HOOKS": [
        "drf_spectacular.hooks.postprocess_schema_enums",
        "agentruntime.api_docs.add_errors",
    ],
    "ENUM_NAME_OVERRIDES": {
        "RunStatusEnum": "agentruntime.models.RunStatus",
        "CallStatusEnum": "agentruntime.models.CallStatus",
        "InterruptStatusEnum": "agentruntime.models.InterruptStatus",
        "DeliveryStatusEnum": "agentruntime.models.DeliveryStatus",
        "ApprovalStatusEnum": "approvals.models.Status",
        "InterruptKindEnum": "agentruntime.models.InterruptKind",
        "CallKindEnum": "agentruntime.models.CallKind",
    },
}


# --- security --------------------------------------------------------------------------------

SESSION_COOKIE_SECURE = HTTPS
CSRF_COOKIE_SECURE = HTTPS
SECURE_SSL_REDIRECT = HTTPS
SECURE_HSTS_SECONDS = 30 * 24 * 3600 if HTTPS else 0
# Whether other hosts under the same domain speak TLS is not this site's to promise.
SILENCED_SYSTEM_CHECKS = ["security.W005", "security.W021"]


# --- logs ------------------------------------------------------------------------------------

LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"line": {"format": "%(asctime)s %(levelname)s %(name)s: %(message)s"}},
    "handlers": {"console": {"class": "logging.StreamHandler", "formatter": "line"}},
    "root": {"handlers": ["console"], "level": "INFO"},
    # Django brings a console handler of its own, which would print each line twice.
    "loggers": {"django": {"handlers": [], "level": "INFO"}},
}
