package main

// brokerMutants break what the Publishers and Subscribers of other brokers promise.
var brokerMutants = []Mutant{
	{
		Name: "nats-id-of-the-moment", File: "contrib/nats/publisher.go", Package: "contrib/nats", Test: "^TestPublishedTwice$",
		Old: `= []string{id}`, New: `= []string{id + message.NewID()}`,
		Why: "an event that is published twice is stored twice",
	},
	{
		Name: "nats-id-without-source", File: "contrib/nats/convert.go", Package: "contrib/nats", Test: "^TestPublishedTwice$",
		Old: `return escape(event.Source()) + " " + escape(event.ID())`, New: `return escape(event.ID())`,
		Why: "an event of one service is lost because another has numbered one alike",
	},
	{
		Name: "nats-outage-costs-an-attempt", File: "contrib/nats/publisher.go", Package: "contrib/nats", Test: "^TestAnswers$",
		Old: `return relay.Unavailable(relay.Classify("no_stream", err))`, New: `return relay.Classify("no_stream", err)`,
		Why: "a leader election parks events",
	},
	{
		Name: "nats-acks-what-it-gives-out", File: "contrib/nats/subscription.go", Package: "contrib/nats", Test: "^TestSettlements$",
		Old: "	s.out <- raw\n", New: "	_ = msg.Ack()\n	s.out <- raw\n",
		Why: "a message is lost when its handler fails or its process dies",
	},
	{
		Name: "nats-identity-of-a-delivery", File: "contrib/nats/subscription.go", Package: "contrib/nats", Test: "^TestIdentity$",
		Old: `meta.Sequence.Stream, 10`, New: `meta.Sequence.Consumer, 10`,
		Why: "a message that is delivered again counts again",
	},
	{
		Name: "nats-identity-of-another-stream", File: "contrib/nats/subscription.go", Package: "contrib/nats", Test: "^TestIdentity$",
		Old: ` + "-" + strconv.FormatInt(meta.Timestamp.UnixNano(), 10)`, New: ` + "-"`,
		Why: "the messages of a stream that was made again pass for duplicates",
	},
	{
		Name: "nats-forgets-without-a-dead-letter", File: "contrib/nats/subscription.go", Package: "contrib/nats", Test: "^TestDeadLetterFails$",
		Old: "		if err == nil {\n			s.tell(msg, \"term\"", New: "		if err == nil || true {\n			s.tell(msg, \"term\"",
		Why: "a message is lost when its dead letter cannot be published",
	},
	{
		Name: "nats-gives-no-signs", File: "contrib/nats/subscription.go", Package: "contrib/nats", Test: "^TestHeartbeat$/^beats$",
		Old: `_ = msg.InProgress()`, New: `_ = msg`,
		Why: "a slow handler's message is given to another consumer",
	},
	{
		Name: "kafka-key-dropped", File: "contrib/kafka/publisher.go", Package: "contrib/kafka", Test: "^TestRecords$",
		Old: `key := p.cfg.Key(event); key != "" {`, New: `key := p.cfg.Key(event); key == "" {`,
		Why: "events of one key overtake each other in several partitions",
	},
	{
		Name: "kafka-producer-not-idempotent", File: "contrib/kafka/publisher.go", Package: "contrib/kafka", Test: "^TestRefused$",
		Old: `client.OptValue(kgo.DisableIdempotentWrite) == true`, New: `client.OptValue(kgo.DisableIdempotentWrite) == "no"`,
		Why: "a retry of the client stores a record twice",
	},
	{
		Name: "kafka-outage-repeats", File: "contrib/kafka/publisher.go", Package: "contrib/kafka", Test: "^TestOutageRepeatsNothing$",
		Old: `	if f != nil {`, New: `	if f != nil && f.done == nil {`,
		Why: "a relay's tries in an outage are all stored after it",
	},
	{
		Name: "kafka-commits-past-a-gap", File: "contrib/kafka/partition.go", Package: "contrib/kafka", Test: "^TestWindow$",
		Old: `p.entries[n].state == acked {`, New: `p.entries[n].state != waiting {`,
		Why: "a record whose handler's process dies is lost",
	},
	{
		Name: "kafka-acks-what-it-gives-out", File: "contrib/kafka/subscription.go", Package: "contrib/kafka", Test: "^TestRestart$",
		Old: "	return raw\n}\n\nfunc (s *subscription) unmarshal", New: "	s.ack(e)\n	return raw\n}\n\nfunc (s *subscription) unmarshal",
		Why: "a record is lost when its handler fails or its process dies",
	},
	{
		Name: "kafka-loser-commits", File: "contrib/kafka/commit.go", Package: "contrib/kafka", Test: "^TestRebalance$",
		Old: `close(p.abandoned)`, New: `_ = p.abandoned`,
		Why: "a member that has lost a partition moves the offset of its new owner",
	},
	{
		Name: "kafka-identity-of-a-delivery", File: "contrib/kafka/convert.go", Package: "contrib/kafka", Test: "^TestOrder$",
		Old: `strconv.Itoa(int(rec.Partition))`, New: `message.NewID()`,
		Why: "a record that is delivered again counts again",
	},
}
