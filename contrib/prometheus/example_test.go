package prometheus_test

import (
	"context"
	"fmt"

	prom "github.com/prometheus/client_golang/prometheus"

	"github.com/luatx/luatx/contrib/prometheus"
	"github.com/luatx/luatx/relay"
)

func ExampleMetrics() {
	metrics, err := prometheus.New(prometheus.Config{})
	if err != nil {
		panic(err)
	}
	registry := prom.NewRegistry()
	registry.MustRegister(metrics)

	cfg := relay.Config{Observer: metrics.Relay("orders")} // as a relay calls it:
	cfg.Observer.Settled(context.Background(), relay.Settled{Sent: 3, Parked: []relay.Parked{{ID: "17", Class: "http_422"}}})

	families, _ := registry.Gather()
	for _, family := range families {
		if family.GetName() != "luatx_relay_parked_total" {
			continue
		}
		for _, metric := range family.GetMetric() {
			for _, label := range metric.GetLabel() {
				fmt.Println(label.GetName(), label.GetValue())
			}
			fmt.Println(family.GetName(), metric.GetCounter().GetValue())
		}
	}
	// Output:
	// class http_422
	// namespace orders
	// luatx_relay_parked_total 1
}
