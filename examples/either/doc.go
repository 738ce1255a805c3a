// Command either is a service that runs on Redis or on an SQL database, as a flag selects. Its handler in handler.go
// depends on neither. redis.go and sql.go contain the differences: the adapters and the wiring. main.go runs either of
// them.
//
//	go run ./examples/either                                      # Redis, embedded
//	go run ./examples/either -redis localhost:6379
//	go run ./examples/either -store sql                           # SQLite, in a temporary file
//	go run ./examples/either -store sql -dsn postgres://localhost/shop
//	go run ./examples/either -store sql -dsn mysql://root@tcp(localhost:3306)/shop
package main
