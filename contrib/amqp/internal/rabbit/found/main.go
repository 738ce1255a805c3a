// Command found prints in one line whether there is a RabbitMQ to test with, and installs it first where that is allowed.
package main

import (
	"fmt"

	"github.com/luatx/luatx/contrib/amqp/internal/rabbit"
)

func main() { fmt.Println(rabbit.Found()) }
