package brokertest

import (
	"os"
	"testing"
	"time"

	"github.com/luatx/luatx/internal/test/redistest"
)

// KillTest is a test of a Ledger whose members are killed.
type KillTest struct {
	Ledger *Ledger
	// Args are the arguments of a member.
	Args []string
	// Publish publishes the messages from to to-1 of each account, in order.
	Publish func(from, to int)
	// Forget makes the source forget all acknowledgements. No member runs meanwhile.
	Forget func()
}

// Run publishes messages while a member is killed every second and another one stalls now and then. In the middle, all members are
// killed and the source forgets all acknowledgements. Every message must be applied once and in order. With LUATX_VERIFY, there
// are 100,000 messages.
func (k KillTest) Run(t *testing.T) {
	t.Helper()
	rounds, each := 4, 40 // of one second
	if os.Getenv("LUATX_VERIFY") != "" {
		rounds, each = 30, 1000
	}
	total := Accounts * each
	begun := time.Now()
	k.Publish(0, 1)
	crew := NewCrew(t, 3, k.Args...)
	second := time.NewTicker(time.Second)
	defer second.Stop()
	published, wake := 1, func() {}
	for round, applied := 0, 0; applied < total || round < rounds; round++ {
		if round < rounds {
			until := 1 + (each-1)*(round+1)/rounds
			k.Publish(published, until)
			published = until
		}
		<-second.C
		wake()
		wake = func() {}
		switch {
		case round == rounds/2:
			crew.KillAll()
			k.Forget()
			crew.StartAll()
		case round%3 == 1:
			wake = crew.Stall()
		default:
			crew.KillOne()
		}
		var err error
		applied, err = k.Ledger.Applied(t.Context(), Accounts)
		redistest.Must(t, err)
		if time.Since(begun) > 20*time.Minute || t.Failed() {
			t.Fatalf("%d of %d messages were applied", applied, total)
		}
		t.Logf("%v: %d of %d messages applied", time.Since(begun).Round(time.Second), applied, total)
	}
	wake()
	took := time.Since(begun)
	k.Ledger.Want(t, Accounts, each)
	positions, bytes := k.Ledger.Positions(t)
	t.Logf("%d messages of %d accounts in %v: %d kills, %d stalls, one redelivery of every message; %d positions use %d bytes in total",
		total, Accounts, took.Round(time.Second), crew.Kills, crew.Stalls, positions, bytes)
}
