package relay

import (
	"errors"
	"fmt"
	"net/netip"
	"syscall"
)

// ErrDeniedAddress is the cause if HTTPConfig.DenyPrivate denies the address of an event's host.
var ErrDeniedAddress = errors.New("the address is not public")

// notPublic lists ranges that netip reports as global, but that reach no public host.
var notPublic = []netip.Prefix{
	netip.MustParsePrefix("0.0.0.0/8"),
	netip.MustParsePrefix("100.64.0.0/10"), // shared by carriers and by metadata services of clouds
	netip.MustParsePrefix("192.0.0.0/24"),
	netip.MustParsePrefix("198.18.0.0/15"),
	netip.MustParsePrefix("240.0.0.0/4"),
	netip.MustParsePrefix("::/96"), // obsolete; contains an IPv4 address
	netip.MustParsePrefix("64:ff9b:1::/48"),
	netip.MustParsePrefix("2001::/32"), // Teredo; contains IPv4 addresses
	netip.MustParsePrefix("fec0::/10"),
}

// translated lists the ranges of IPv6 addresses that a gateway translates to IPv4, with the offset of the IPv4 address in
// bytes.
var translated = []struct {
	prefix netip.Prefix
	from   int
}{
	{netip.MustParsePrefix("64:ff9b::/96"), 12},
	{netip.MustParsePrefix("2002::/16"), 2},
}

// denyPrivate is a net.Dialer.Control, so that it checks the address to which the dialer is about to connect.
func denyPrivate(_, address string, _ syscall.RawConn) error {
	target, err := netip.ParseAddrPort(address)
	if err != nil {
		return fmt.Errorf("%w: %q", ErrDeniedAddress, address)
	}
	if !isPublic(target.Addr()) {
		return fmt.Errorf("%w: %s", ErrDeniedAddress, target.Addr())
	}
	return nil
}

func isPublic(addr netip.Addr) bool {
	addr = addr.Unmap().WithZone("")
	if !addr.IsGlobalUnicast() || addr.IsPrivate() {
		return false
	}
	for _, prefix := range notPublic {
		if prefix.Contains(addr) {
			return false
		}
	}
	for _, t := range translated {
		if t.prefix.Contains(addr) {
			whole := addr.As16()
			return isPublic(netip.AddrFrom4([4]byte(whole[t.from : t.from+4])))
		}
	}
	return true
}
