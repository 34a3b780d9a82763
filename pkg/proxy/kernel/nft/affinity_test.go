//go:build linux

package nft

import (
	"net"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/ruleset"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/netns"
)

// clientStatements add a client to a map and delete it there.
func clientStatements() []ruleset.Statement {
	return []ruleset.Statement{
		ruleset.UpdateAffinity{Map: affinity, Mask: stickyMask, Timeout: time.Hour}, ruleset.DeleteAffinity{Map: affinity, Mask: stickyMask},
	}
}

// A statement reads key and value from registers, and an IPv6 key takes five small ones.
// When nft 1.0.6 itself loads the same text, it puts the value into the second large register. For IPv4 that is after
// the key; for IPv6 it overlaps the end of the key, and a part of the address is lost. So other tests do not compare
// registers with those that nft chooses (see comparableExpressions), not even for IPv4, where ours differ too. This
// test checks them instead.
func TestAffinityKeyAndValueRegistersDoNotOverlap(t *testing.T) {
	for _, family := range model.Families {
		for _, statement := range clientStatements() {
			expressions, err := expressionsOf(family, statement)
			if err != nil {
				t.Fatal(err)
			}
			change, ok := expressions[len(expressions)-1].(*expr.Dynset)
			if !ok {
				t.Fatalf("%T in %s ends with a %T", statement, family, expressions[len(expressions)-1])
			}
			want := []any{
				&expr.Meta{Key: expr.MetaKeyPRIORITY, Register: change.SrcRegKey}, change.SrcRegKey,
				change.SrcRegKey + registers(4), change.SrcRegKey + registers(4) + registers(addrSize(family)), change.SrcRegData,
			}
			priority, isMeta := expressions[0].(*expr.Meta)
			masked, isMask := expressions[1].(*expr.Bitwise)
			addr, isAddr := expressions[2].(*expr.Payload)
			value, isValue := expressions[3].(*expr.Meta)
			if !isMeta || !isMask || !isAddr || !isValue || masked.SourceRegister != masked.DestRegister || len(expressions) != 5 {
				t.Fatalf("%T in %s is %+v", statement, family, expressions)
			}
			got := []any{priority, masked.DestRegister, addr.DestRegister, value.Register, value.Register}
			if diff := cmp.Diff(want, got); diff != "" || value.Key != expr.MetaKeyPRIORITY {
				t.Errorf("%T in %s: priority, mask, address, end of the key and value (-want +got):\n%s", statement, family, diff)
			}
		}
	}
}

// dynset is a statement that changes a map, in nft's listing of the kernel's rules.
var dynset = regexp.MustCompile(`\[ dynset (?:update|delete) reg_key (\d+) set affinity-7 .*sreg_data (\d+) `)

// A dump of the kernel's rules shows the registers.
func TestKernelRegistersOfAffinityDoNotOverlap(t *testing.T) {
	for _, family := range model.Families {
		var forms []form
		for _, statement := range clientStatements() {
			forms = append(forms, form{rule: ruleset.Rule{statement}})
		}
		namespace := netns.New(t)
		commit(t, dial(t, namespace, Options{}), formsBatch(family, forms))
		found := dynset.FindAllStringSubmatch(namespace.NFT("--debug=netlink", "list", "ruleset"), -1)
		if len(found) != len(forms) {
			t.Fatalf("%d statements change the map in %s, want %d", len(found), family, len(forms))
		}
		for _, match := range found {
			key, value := smallRegister(t, match[1]), smallRegister(t, match[2])
			if end := key + registers(tupleSize(family, affinity.Key)); value < end {
				t.Errorf("in %s the kernel has %q: the key ends before register %d, and the value is in %d", family, match[0], end, value)
			}
		}
	}
}

// smallRegister returns the number of a register of four bytes; the kernel reports every fourth by the number of a
// large one.
func smallRegister(t *testing.T, text string) uint32 {
	t.Helper()
	number, err := strconv.ParseUint(text, 10, 32)
	if err != nil {
		t.Fatal(err)
	}
	if number <= unix.NFT_REG_4 {
		return firstRegister + 4*uint32(number-unix.NFT_REG_1)
	}
	return uint32(number)
}

// An affinity element with the number of no endpoint is deleted, and the client is then stored with its new endpoint.
// Without the deletion the old value would be kept.
func TestAffinityToAnAbsentEndpointIsDeleted(t *testing.T) {
	for _, family := range model.Families {
		t.Run(family.String(), func(t *testing.T) {
			namespace := netns.New(t)
			serve(t, namespace, family)
			c := dial(t, namespace, Options{})
			commit(t, c, everythingWithAffinity(family, time.Hour))
			stale := affinityElement(family)
			stale.Value.Number++
			remember := new(operations).elements(ruleset.Add, family, affinity, stale)
			commit(t, c, remember.Batch)

			connect(t, namespace, family)
			if diff := cmp.Diff([]ruleset.Element{affinityElement(family)}, elementsOf(t, c, family, affinity), comparableElements); diff != "" {
				t.Errorf("the clients after a connection (-want +got):\n%s", diff)
			}

			// No slot is picked any more.
			again := new(operations).do(ruleset.Flush, family, ruleset.SetObject{Set: affinity}).
				do(ruleset.Flush, family, ruleset.SetObject{Set: ruleset.StickyEndpoints}).
				do(ruleset.Flush, family, ruleset.SetObject{Set: ruleset.Endpoints})
			commit(t, c, again.elements(ruleset.Add, family, affinity, stale).Batch)
			addrs := addressesOf(family)
			namespace.Do(func() {
				dialer := net.Dialer{Timeout: 100 * time.Millisecond, LocalAddr: &net.TCPAddr{IP: addrs.endpoint.AsSlice()}}
				if connection, err := dialer.Dial("tcp", net.JoinHostPort(addrs.service.String(), "80")); err == nil {
					_ = connection.Close()
					t.Error("a client is connected although no slot is picked")
				}
			})
			if got := elementsOf(t, c, family, affinity); len(got) > 0 {
				t.Errorf("the clients are %v, want none", got)
			}
		})
	}
}

// A client has a separate element for each Service port, and each client of a port has its own.
func TestAffinityIsPerPortAndClient(t *testing.T) {
	for _, family := range model.Families {
		namespace := netns.New(t)
		serve(t, namespace, family)
		c := dial(t, namespace, Options{})
		commit(t, c, everythingWithAffinity(family, time.Hour))
		element, otherPort, otherClient := affinityElement(family), affinityElement(family), affinityElement(family)
		otherPort.Key.Number, otherPort.Value.Number = stickyPort+0x100, stickyEndpoint+0x100
		otherClient.Key.Addr = otherClient.Key.Addr.Next()
		commit(t, c, new(operations).elements(ruleset.Add, family, affinity, otherPort, otherClient).Batch)
		connect(t, namespace, family)
		got := elementsOf(t, c, family, affinity)
		inAnyOrder := cmpopts.SortSlices(func(a, b ruleset.Element) bool { return a.Key.Text(affinity.Key) < b.Key.Text(affinity.Key) })
		if diff := cmp.Diff([]ruleset.Element{element, otherPort, otherClient}, got, comparableElements, inAnyOrder); diff != "" {
			t.Errorf("the clients in %s (-want +got):\n%s", family, diff)
		}
	}
}

// Another process may have put anything there. The rest of the table must still be read, or it would never be repaired.
func TestForeignMapsOfOurNamesAreNotRestored(t *testing.T) {
	for name, set := range map[string]struct{ declaration, elements string }{
		"keys of another type": {"map sticky-ports { type ipv4_addr : ipv4_addr; }", "sticky-ports { 192.0.2.1 : 192.0.2.2 }"},
		"values of another type": {
			"map sticky-ports { type ipv4_addr . inet_proto . inet_service : verdict; }", "sticky-ports { 192.0.2.1 . tcp . 80 : drop }",
		},
		"a set":           {"set numbered-collided { type inet_proto . classid; }", "numbered-collided { tcp . 1:2 }"},
		"a set of ranges": {"set sticky-outside { type ipv4_addr; flags interval; }", "sticky-outside { 192.0.2.0/24 }"},
	} {
		t.Run(name, func(t *testing.T) {
			namespace := netns.New(t)
			c := dial(t, namespace, Options{})
			namespace.Load("table ip vicinity {\n" + set.declaration + "\n}\nadd element ip vicinity " + set.elements + "\n")
			got, err := c.Objects(t.Context(), model.IPv4)
			if err != nil {
				t.Fatalf("the table cannot be read: %v", err)
			}
			if !got.Table || len(got.Sets) != 1 {
				t.Errorf("got %+v, want the table with that set", got)
			}
			for name, contents := range got.Contents {
				if len(contents) > 0 {
					t.Errorf("%s has %v, want nothing", name, contents)
				}
			}
		})
	}
}
