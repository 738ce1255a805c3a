// Package promqltest parses the queries of the alert rules and the dashboard with the parser of Prometheus. It is a module of its
// own, because it links the parser.
package promqltest
