// Command either is a service that runs on Redis or on an SQL database, as a flag says. Its handler is in handler.go and
// knows of neither; redis.go and sql.go are what differs, adapter and wiring, and main.go is what runs either of them.
//
//	go run ./examples/either                                      # Redis, embedded
//	go run ./examples/either -redis localhost:6379
//	go run ./examples/either -store sql                           # SQLite, in a temporary file
//	go run ./examples/either -store sql -dsn postgres://localhost/shop
//	go run ./examples/either -store sql -dsn mysql://root@tcp(localhost:3306)/shop
package main
