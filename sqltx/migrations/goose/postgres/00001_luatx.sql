-- +goose Up
CREATE TABLE IF NOT EXISTS "processed_messages" (
    subscriber  TEXT NOT NULL,
    source      TEXT NOT NULL,
    message_id  TEXT NOT NULL,
    created_at  TIMESTAMPTZ NOT NULL DEFAULT now(),
    PRIMARY KEY (subscriber, source, message_id)
);

CREATE INDEX IF NOT EXISTS "processed_messages_created" ON "processed_messages" (created_at);

CREATE TABLE IF NOT EXISTS "outbox" (
    id               BIGSERIAL PRIMARY KEY,
    created_at       TIMESTAMPTZ NOT NULL DEFAULT now(),
    topic            TEXT NOT NULL,
    event_type       TEXT NOT NULL,
    data             JSON NOT NULL,
    data_base64      BOOLEAN NOT NULL DEFAULT FALSE,
    attributes       JSON NOT NULL,
    ordering_key     TEXT,
    published        BOOLEAN NOT NULL DEFAULT FALSE,
    parked           BOOLEAN NOT NULL DEFAULT FALSE,
    attempts         INTEGER NOT NULL DEFAULT 0,
    next_attempt_at  BIGINT NOT NULL DEFAULT 0,
    lease            TEXT,
    last_error       TEXT
);

CREATE INDEX IF NOT EXISTS "outbox_due" ON "outbox" (next_attempt_at, id) WHERE published = FALSE AND parked = FALSE AND ordering_key IS NULL;

CREATE INDEX IF NOT EXISTS "outbox_order" ON "outbox" (ordering_key, id) WHERE published = FALSE AND ordering_key IS NOT NULL;

CREATE INDEX IF NOT EXISTS "outbox_leased" ON "outbox" (ordering_key, next_attempt_at) WHERE published = FALSE AND ordering_key IS NOT NULL AND lease IS NOT NULL;

CREATE INDEX IF NOT EXISTS "outbox_parked" ON "outbox" (id) WHERE parked = TRUE;

CREATE INDEX IF NOT EXISTS "outbox_created" ON "outbox" (created_at);

-- +goose Down
DROP TABLE IF EXISTS "outbox";
DROP TABLE IF EXISTS "processed_messages";
