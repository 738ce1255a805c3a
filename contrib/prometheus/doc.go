// Package prometheus exports metrics of luatx to Prometheus; docs/observability.md lists them.
//
// Observers count what a process does:
//
//	metrics, err := prometheus.New(prometheus.Config{})
//	registry.MustRegister(metrics)
//
//	transactor, err := luatx.New(client, luatx.Config{Namespace: "orders", Observer: metrics.Transactor("orders")})
//	events, err := relay.New(transactor, publisher, relay.Config{Observer: metrics.Relay("orders")})
//	subscriber, err := stream.NewSubscriber(client, stream.SubscriberConfig{Observer: metrics.Subscriber(), …})
//	metrics.Count("orders", "billing", subscriber.Stats)
//	mailer := trigger.New(trigger.Config{Observer: metrics.Trigger(), …})
//	metrics.WatchTrigger(mailer)
//
// One process of a service, or luatx serve, should export the state of the shards:
//
//	op, err := admin.NewOperator(transactor, admin.OperatorConfig{Client: client, Name: "metrics"})
//	outbox, err := prometheus.NewOutbox(op, prometheus.OutboxConfig{Namespace: "orders"})
//	registry.MustRegister(outbox)
package prometheus
