package setup

import (
	"time"

	"github.com/luatx/luatx/expiry"
	"github.com/luatx/luatx/message"
)

var (
	timers        *expiry.Store
	expiresAt     = time.Now().Add(time.Hour)
	later         = expiresAt.Add(time.Hour)
	ticketRevoked = ticketExpired("ticket-17")
)

func ticketExpired(subject string) *message.Message {
	return message.New(map[string]string{"ticket": subject}, message.Attributes{"type": "ticket.ended", "source": "/tickets", "subject": subject}, nil)
}

func prepare() {
	var err error
	timers, err = expiry.New(transactor, expiry.Config{})
	must_(err)
}
