// Package respproxy is a TCP proxy that understands the Redis protocol and, by rules on single requests and replies,
// does to them what networks do: lose, delay, repeat, cut, deliver late.
//
//	p, err := respproxy.New(addr)                                           // listens on a loopback port: p.Addr()
//	p.Next(1, respproxy.Command("EVALSHA"), respproxy.CutReply())           // executed, but the client never hears of it
//	hold := p.Hold(respproxy.Command("EVALSHA"))                            // the next one stays in the network …
//	err = hold.Wait(ctx)                                                    // … it is there now …
//	hold.Release()                                                          // … and arrives, even if the client has given up
//	p.On(func(cmd []string) respproxy.Action { … })                         // anything else
//	p.Chaos(respproxy.Chaos{Seed: 1, DropReply: 0.05, Duplicate: 0.05})     // a bad day
//
//	p.Count("EVALSHA")                                                      // requests seen, by name
//	p.Commands(respproxy.Work)                                              // requests seen, without connection set-up
//
// It behaves like a TCP connection where it can: bytes keep their order. Bytes that follow a lost request or reply on
// the same connection are therefore lost as well, and bytes that follow a delayed or held one wait. A silent loss
// leaves the connection open; the Cut and Split actions close it. A Duplicate is the exception: it stands for a client
// that sends again.
//
// Requests are framed in RESP2 or inline, replies in RESP2 or RESP3; push messages and everything after a SUBSCRIBE,
// MONITOR or CLIENT REPLY pass through, so that no reply action applies there. Replication (SYNC, PSYNC) is refused.
// A cluster's MOVED and slot tables name the real nodes: put a proxy before a single node's client only.
package respproxy
