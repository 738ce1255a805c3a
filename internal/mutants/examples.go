package main

// exampleMutants break what the examples show: each is to fail where the library would.
var exampleMutants = []Mutant{
	{
		Name: "example-ticket-oversells", File: "examples/ticket/main.go", Package: "examples/ticket", Test: "^TestTicket$",
		Old: `if tonumber(redis.call('GET', seats) or 0) < 1 then`, New: `if false then`,
		Why: "users would copy a procedure that sells seats that do not exist",
	},
	{
		Name: "example-saga-keeps-the-stock", File: "examples/saga/main.go", Package: "examples/saga", Test: "^TestSaga$",
		Old: `s.take("stock", -1)`, New: `s.take("stock", 0)`,
		Why: "users would copy a saga without its compensation",
	},
	{
		Name: "example-webhook-not-verified", File: "examples/webhook/main.go", Package: "examples/webhook", Test: "^TestWebhook$",
		Old: `cehttp.ReadConfig{Secrets: [][]byte{rcv.secret}}`, New: `cehttp.ReadConfig{DisableVerification: true}`,
		Why: "users would copy a receiver that takes events from anybody",
	},
	{
		Name: "example-not-in-the-table", File: "examples/README.md", Package: "examples", Test: "^TestTableIsComplete$",
		Old: "| [saga](saga) | `go run ./examples/saga`", New: "| [ticket](ticket) | `go run ./examples/saga`",
		Why: "an example would be there, and nobody would find it",
	},
}
