//go:build linux

package nft

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/ruleset"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/netns"
)

// verdicts is a map that leads an address to a chain.
var verdicts = ruleset.Set{Name: "verdicts", Key: []ruleset.Type{ruleset.TypeAddr}, Value: []ruleset.Type{ruleset.TypeVerdict}}

// datagram has the rules that a datagram from the endpoint's address to the service's address passes, and the sender's
// error.
type datagram struct {
	output, postrouting []ruleset.Rule
	jumped              []ruleset.Rule // of the chain that the map verdicts leads to
	allowed             netip.Prefix   // the only sources that may reach the destination, if it is valid
	want                error
}

func datagrams(addrs addresses) map[string]datagram {
	drop, returns := ruleset.Rule{verdictOf(ruleset.Drop, "")}, ruleset.Rule{verdictOf(ruleset.Return, "")}
	lookup := ruleset.Rule{ruleset.VerdictOf{Key: []ruleset.Field{ruleset.DestinationAddr}, Map: verdicts}}
	toServices := ruleset.Rule{ruleset.InPrefix{Field: ruleset.DestinationAddr, Prefix: addrs.services}, verdictOf(ruleset.Drop, "")}
	through := func(rules ...ruleset.Rule) datagram { return datagram{output: rules} }
	jumping := func(jumped ...ruleset.Rule) datagram { return datagram{output: []ruleset.Rule{lookup}, jumped: jumped} }
	thenDrop := func(jumped ...ruleset.Rule) datagram {
		return datagram{output: []ruleset.Rule{lookup, drop}, jumped: jumped}
	}
	allowing := func(addr netip.Addr, hostBits int) datagram {
		return datagram{allowed: netip.PrefixFrom(addr, addr.BitLen()-hostBits).Masked(), output: []ruleset.Rule{
			{ruleset.WritePriority{Number: listNumber}, verdictOf(ruleset.Goto, "source-ranges")},
		}}
	}
	refused := func(d datagram) datagram {
		d.want = unix.EPERM
		return d
	}
	cases := map[string]datagram{
		"without rules":                           through(),
		"a drop in output":                        refused(through(drop)),
		"a drop of a prefix in postrouting":       refused(datagram{postrouting: []ruleset.Rule{toServices}}),
		"a rule after a chain that returns":       refused(thenDrop(returns)),
		"a rule after a chain that ends":          refused(thenDrop()),
		"a rule after the return":                 jumping(returns, drop),
		"a verdict in the chain":                  refused(jumping(drop)),
		"an allowed range with the source":        allowing(addrs.endpoint, 1),
		"the source as the one allowed address":   allowing(addrs.endpoint, 0),
		"an allowed range just before the source": refused(allowing(addrs.endpoint.Prev(), 1)),
		"an allowed range just after the source":  refused(allowing(addrs.endpoint.Next().Next(), 1)),
		"all clients are allowed":                 allowing(addrs.endpoint, addrs.endpoint.BitLen()),
	}
	for bits := 2; bits < addrs.endpoint.BitLen(); bits += 2 {
		adjacent := addrs.endpoint.AsSlice()
		adjacent[(bits-1)/8] ^= 1 << ((8*len(adjacent) - bits) % 8)
		addr, _ := netip.AddrFromSlice(adjacent)
		cases[fmt.Sprintf("an allowed range of %d bits with the source", bits)] = allowing(addrs.endpoint, addrs.endpoint.BitLen()-bits)
		cases[fmt.Sprintf("an allowed range of %d bits next to the source", bits)] = refused(allowing(addr, addr.BitLen()-bits))
	}
	return cases
}

// A drop causes an error for the sender, in every hook.
func TestADroppedDatagramIsAnErrorForItsSender(t *testing.T) {
	for _, family := range model.Families {
		for name, test := range datagrams(addressesOf(family)) {
			t.Run(family.String()+": "+name, func(t *testing.T) {
				namespace := netns.New(t)
				serve(t, namespace, family)
				commit(t, dial(t, namespace, Options{}), test.batch(family))
				addrs := addressesOf(family)
				if err := send(t, namespace, addrs.endpoint, addrs.service); !errors.Is(err, test.want) {
					t.Errorf("sending gave %v, want %v", err, test.want)
				}
			})
		}
	}
}

func (d datagram) batch(family model.Family) ruleset.Batch {
	addrs := addressesOf(family)
	o := operations{emptyMaps(family, verdicts, ruleset.Sources)}
	tracking(&o, family)
	for _, chain := range []ruleset.Chain{
		regular("jumped", d.jumped...),
		ruleset.SourceRangesChain([]int{max(0, d.allowed.Bits())}),
		{Name: "nat-output", Hook: ruleset.Output, Priority: ruleset.PriorityDNAT, Rules: d.output},
		{Name: "nat-postrouting", Hook: ruleset.Postrouting, Priority: ruleset.PrioritySNAT, Rules: d.postrouting},
	} {
		o.do(ruleset.Add, family, ruleset.ChainObject{Chain: chain}).do(ruleset.Add, family, ruleset.RulesObject{Chain: chain})
	}
	o.elements(ruleset.Add, family, verdicts,
		ruleset.Element{Key: ruleset.Tuple{Addr: addrs.service}, Verdict: verdictOf(ruleset.Jump, "jumped").Verdict})
	if d.allowed.IsValid() {
		o.elements(ruleset.Add, family, ruleset.Sources, rangeElement(d.allowed))
	}
	return o.Batch
}

// send sends one datagram and returns the kernel's error.
func send(t *testing.T, namespace *netns.Namespace, from, to netip.Addr) (err error) {
	t.Helper()
	namespace.Do(func() {
		local := net.UDPAddrFromAddrPort(netip.AddrPortFrom(from, 0))
		connection, dialErr := net.DialUDP("udp", local, net.UDPAddrFromAddrPort(netip.AddrPortFrom(to, port)))
		if dialErr != nil {
			t.Fatal(dialErr)
		}
		defer func() { _ = connection.Close() }()
		_, err = connection.Write([]byte("hello"))
	})
	return err
}
