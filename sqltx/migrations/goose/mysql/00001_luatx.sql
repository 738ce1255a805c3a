-- +goose Up
CREATE TABLE IF NOT EXISTS `processed_messages` (
    subscriber  VARBINARY(255) NOT NULL,
    source      VARBINARY(255) NOT NULL,
    message_id  VARBINARY(255) NOT NULL,
    created_at  TIMESTAMP(6) NOT NULL DEFAULT CURRENT_TIMESTAMP(6),
    deliveries  INTEGER NOT NULL DEFAULT 1,
    PRIMARY KEY (subscriber, source, message_id),
    INDEX luatx_created (created_at)
) ENGINE=InnoDB;

CREATE TABLE IF NOT EXISTS `outbox` (
    id               BIGINT AUTO_INCREMENT PRIMARY KEY,
    created_at       TIMESTAMP(6) NOT NULL DEFAULT CURRENT_TIMESTAMP(6),
    topic            VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
    event_type       VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
    data             LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
    data_base64      BOOLEAN NOT NULL DEFAULT FALSE,
    attributes       LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
    ordering_key     VARBINARY(255),
    published        BOOLEAN NOT NULL DEFAULT FALSE,
    parked           BOOLEAN NOT NULL DEFAULT FALSE,
    attempts         INTEGER NOT NULL DEFAULT 0,
    next_attempt_at  BIGINT NOT NULL DEFAULT 0,
    lease            VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin,
    last_error       TEXT CHARACTER SET utf8mb4,
    INDEX luatx_due (published, parked, ordering_key, next_attempt_at, id),
    INDEX luatx_order (published, ordering_key, id),
    INDEX luatx_leased (ordering_key, published, lease),
    INDEX luatx_created (published, created_at)
) ENGINE=InnoDB;

-- +goose Down
DROP TABLE IF EXISTS `outbox`;
DROP TABLE IF EXISTS `processed_messages`;
