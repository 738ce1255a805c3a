// Package service puts a service together: a stream, handlers, commits, a relay, timers, repair and what operators see,
// from one constructor. It starts the pieces in order and stops them in order.
//
//	orders, err := service.New(client, service.Config{Namespace: "orders", Stream: "orders", Partitions: 16, Events: "order-events"},
//		service.Command("place-order", placeOrder))
//	err = orders.Run(ctx) // until ctx ends
//
// The package composes public pieces and adds none: docs/service.md shows what the lines above stand for. Config.Given takes
// each piece that a program makes itself.
package service
