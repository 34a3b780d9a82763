//go:build linux

package nft

import (
	"encoding/hex"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/netnstest"
	"github.com/vicinity-proxy/vicinity/pkg/ruleset"
)

// golden is what nft lists for everything in the IPv4 table.
const golden = `table ip vicinity {
	map services {
		type ipv4_addr . inet_proto . inet_service : classid
		elements = { 10.96.0.1 . 6 . 80 : fe00:3 }
	}

	map dispatch {
		type classid : verdict
		elements = { fe00:3 : goto lb-3, ff00:1 : goto refuse, ff00:2 : drop }
	}

	map endpoints {
		type ipv4_addr . inet_proto . inet_service . classid : ipv4_addr . inet_service
		elements = { 10.96.0.1 . 6 . 80 . fd00:2 : 10.244.0.2 . 8080 }
	}

	map sticky {
		type ipv4_addr . inet_proto . inet_service : verdict
		elements = { 10.96.0.1 . 6 . 80 : jump sticky-default/web/tcp/http }
	}

	map learn {
		type ipv4_addr . inet_proto . inet_service : verdict
		elements = { 10.96.0.1 . 6 . 80 : jump learn-default/web/tcp/http }
	}

	set cluster-ips {
		type ipv4_addr
		elements = { 10.96.0.1 }
	}

	set hairpin {
		type ipv4_addr . ipv4_addr . inet_proto . inet_service
		elements = { 10.244.0.2 . 10.244.0.2 . 132 . 8080 }
	}

	map affinity-default/web/tcp/http {
		type ipv4_addr : ipv4_addr
		size 65535
		flags dynamic,timeout
		elements = { 192.0.2.7 : 10.244.0.2 }
	}

	chain refuse {
		reject
	}

	chain drop-all {
		drop
	}

	chain reset-tcp {
		reject with tcp reset
	}

	chain balance {
		dnat ip to ip daddr . meta l4proto . th dport . meta priority map @endpoints
	}

	chain lb-3 {
		meta priority set numgen random mod 3 offset 4244635648 goto balance
	}

	chain sticky-default/web/tcp/http {
		meta l4proto 6 dnat to ip saddr map @affinity-default/web/tcp/http:8080
	}

	chain learn-default/web/tcp/http {
		meta l4proto 6 ct reply proto-src 8080 update @affinity-default/web/tcp/http { ct original ip saddr timeout 10800s : ct reply ip saddr }
	}

	chain services {
		ip daddr . meta l4proto . th dport vmap @sticky
		meta priority set ip daddr . meta l4proto . th dport map @services
		meta priority vmap @dispatch
		ip daddr @cluster-ips goto refuse
	}

	chain learn {
		meta l4proto 6 ct original ip daddr . meta l4proto . ct original proto-dst vmap @learn
	}

	chain nat-prerouting {
		type nat hook prerouting priority -100; policy accept;
		jump services
	}

	chain nat-output {
		type nat hook output priority -100; policy accept;
		jump services
	}

	chain nat-postrouting {
		type nat hook postrouting priority 100; policy accept;
		meta priority fd00:0-fdff:ffff meta priority set none
		jump learn
		ct status 0x20 ip saddr . ip daddr . meta l4proto . th dport @hairpin masquerade fully-random
		ct original ip daddr @cluster-ips ct original ip saddr != 10.244.0.0/16 masquerade fully-random
	}

	chain nat-input {
		type nat hook input priority 100; policy accept;
		jump learn
	}
}
`

// goldenOf is the same for a family: the IPv6 table differs in nothing but words and addresses.
func goldenOf(family model.Family) string {
	if family == model.IPv4 {
		return golden
	}
	return strings.NewReplacer(
		"table ip ", "table ip6 ", "ipv4_addr", "ipv6_addr", "dnat ip to", "dnat ip6 to",
		"ip saddr", "ip6 saddr", "ip daddr", "ip6 daddr",
		"10.96.0.1", "fd00:10:96::1", "10.244.0.2", "fd00:10:244::2", "192.0.2.7", "2001:db8::7", "10.244.0.0/16", "fd00:10:244::/56",
	).Replace(golden)
}

func TestEverythingIsListedByNFTAsItIsMeant(t *testing.T) {
	for _, family := range model.Families {
		t.Run(family.String(), func(t *testing.T) {
			namespace := netnstest.New(t)
			commit(t, dial(t, namespace, Options{}), everything(family))
			if diff := cmp.Diff(goldenOf(family), namespace.NFT("-n", "list", "ruleset")); diff != "" {
				t.Errorf("nft lists something else (-want +got):\n%s", diff)
			}
			if listed := namespace.NFT("-j", "list", "ruleset"); !json.Valid([]byte(listed)) {
				t.Errorf("nft's JSON is not valid: %s", listed)
			}
		})
	}
}

func TestTheListingLoadsWithNFTIntoTheSameRuleset(t *testing.T) {
	for _, family := range model.Families {
		t.Run(family.String(), func(t *testing.T) {
			namespace, other := netnstest.New(t), netnstest.New(t)
			ours := dial(t, namespace, Options{})
			commit(t, ours, everything(family))

			other.Load(namespace.NFT("list", "ruleset"))

			for _, args := range [][]string{{"-n", "list", "ruleset"}, {"--debug=netlink", "list", "ruleset"}} {
				if diff := cmp.Diff(bare(other.NFT(args...)), bare(namespace.NFT(args...))); diff != "" {
					t.Errorf("nft %v: our rules differ from nft's own (-nft +ours):\n%s", args, diff)
				}
			}
			if diff := cmp.Diff(setsInKernel(t, dial(t, other, Options{}), family), setsInKernel(t, ours, family)); diff != "" {
				t.Errorf("our sets are not declared as nft declares them (-nft +ours):\n%s", diff)
			}
		})
	}
}

// setsInKernel returns what the kernel keeps of each set of our table, by the set's name: its attributes, in hexadecimal.
func setsInKernel(t *testing.T, c *Conn, family model.Family) map[string]map[uint16]string {
	t.Helper()
	const setHandle = 16 // NFTA_SET_HANDLE, which counts up
	sets := map[string]map[uint16]string{}
	err := c.reader.ask(t.Context(), func(m *messages) {
		m.table(unix.NFT_MSG_GETSET, unix.NLM_F_DUMP, number(family))
		m.end()
	}, func(m message) error {
		_, body := m.family()
		set := map[uint16]string{}
		for kind, value := range attributes(body) {
			if kind != setHandle {
				set[kind] = hex.EncodeToString(value)
			}
		}
		sets[textOf(body, unix.NFTA_SET_NAME)] = set
		return nil
	})
	if err != nil || len(sets) != len(everySet(family)) {
		t.Fatalf("reading the sets: %d of them, %v", len(sets), err)
	}
	return sets
}

// bare leaves out of nft's output for debugging what may differ between equals: which register of several holds a value, the
// numbers of rules, that nft repeats a single address and port as the end of a range, and the order in a hash table.
func bare(listing string) string {
	var lines []string
	for line := range strings.Lines(listing) {
		words := strings.Fields(line)
		for i := 1; i < len(words); i++ {
			if slices.Contains([]string{"reg", "sreg_data"}, words[i-1]) {
				words[i] = "N"
			}
		}
		switch {
		case len(words) > 3 && words[0] == "ip" || len(words) > 3 && words[0] == "ip6":
			words = words[:3]
		case strings.Contains(line, "nat dnat"):
			words = words[:4]
		}
		lines = append(lines, strings.Join(words, " "))
	}
	// The elements of the dispatch map stand in the order of the kernel's hash table.
	isElement := func(line string) bool { return strings.HasPrefix(line, "element ") }
	for from := 0; from < len(lines); from++ {
		to := from
		for to < len(lines) && isElement(lines[to]) {
			to++
		}
		slices.Sort(lines[from:to])
		from = max(from, to-1)
	}
	return strings.Join(lines, "\n")
}

func TestPrefixesAreListedAsTheyWereMeant(t *testing.T) {
	for _, prefix := range []string{
		"10.0.0.0/8", "10.240.0.0/12", "10.1.2.3/32", "128.0.0.0/1", "0.0.0.0/0", "10.244.1.128/25",
	} {
		t.Run("not in "+prefix, func(t *testing.T) {
			checkPrefix(t, model.IPv4, prefix)
		})
	}
	for _, prefix := range []string{"fc00::/7", "fd00::/8", "fd00:1000::/21", "fd00::1/128", "::/0", "fd00:10:244::/64"} {
		t.Run("not in "+prefix, func(t *testing.T) {
			checkPrefix(t, model.IPv6, prefix)
		})
	}
}

func TestSetsOfEveryShapeAreDescribedAsNFTDoes(t *testing.T) {
	for text, set := range map[string]ruleset.Set{
		"type inet_service": {Key: []ruleset.Type{ruleset.TypePort}},
		"type inet_proto":   {Key: []ruleset.Type{ruleset.TypeProto}},
		"type classid":      {Key: []ruleset.Type{ruleset.TypeClass}},
		"type classid : ipv4_addr": {
			Key: []ruleset.Type{ruleset.TypeClass}, Value: []ruleset.Type{ruleset.TypeAddr}},
		"type ipv4_addr : classid": {
			Key: []ruleset.Type{ruleset.TypeAddr}, Value: []ruleset.Type{ruleset.TypeClass}},
		"type classid : inet_service . classid": {
			Key: []ruleset.Type{ruleset.TypeClass}, Value: []ruleset.Type{ruleset.TypePort, ruleset.TypeClass}},
	} {
		t.Run(text, func(t *testing.T) {
			namespace := netnstest.New(t)
			set.Name = "shape"
			commit(t, dial(t, namespace, Options{}), emptyMaps(model.IPv4, set))
			word := map[bool]string{true: "map", false: "set"}[set.IsMap()]
			want := "table ip vicinity {\n\t" + word + " shape {\n\t\t" + text + "\n\t}\n}\n"
			if diff := cmp.Diff(want, namespace.NFT("list", "ruleset")); diff != "" {
				t.Errorf("nft lists something else (-want +got):\n%s", diff)
			}
		})
	}
}
