DROP TABLE IF EXISTS `outbox`;
DROP TABLE IF EXISTS `processed_messages`;
