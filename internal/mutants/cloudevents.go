package main

// cloudeventsMutants break the exchange with the SDK of CloudEvents.
var cloudeventsMutants = []Mutant{
	{
		Name: "cloudevents-the-sdk-escapes-the-source", File: "contrib/cloudevents/convert.go", Package: "contrib/cloudevents", Test: "^TestTypes$",
		Old: `if u.String() != text {`, New: `if false {`,
		Why: "the inbox of a consumer takes an event for another one",
	},
	{
		Name: "cloudevents-a-nack-is-a-success", File: "contrib/cloudevents/publisher.go", Package: "contrib/cloudevents", Test: "^TestAnswer$",
		Old: `if protocol.IsACK(result) {`, New: `if protocol.IsACK(result) || protocol.IsNACK(result) {`,
		Why: "an event that was refused is lost",
	},
	{
		Name: "cloudevents-answered-before-the-commit", File: "contrib/cloudevents/receiver.go", Package: "contrib/cloudevents", Test: "^(TestReceiver|TestUnsettled)$",
		Old: "	select {\n	case err := <-settled:", New: "	settled <- nil\n	select {\n	case err := <-settled:",
		Why: "the sender forgets a command that was never applied",
	},
	{
		Name: "cloudevents-bytes-as-json", File: "contrib/cloudevents/convert.go", Package: "contrib/cloudevents", Test: "^TestValid$",
		Old: `msg.Data != nil && !isJSON(`, New: `false && !isJSON(`,
		Why: "data that is no JSON breaks the event",
	},
}
