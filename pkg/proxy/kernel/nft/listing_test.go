//go:build linux

package nft

import (
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/ruleset"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/netns"
)

// goldenOf returns nft's listing of everything in a family's table. The file is for IPv4; the IPv6 table differs only
// in keywords and addresses.
func goldenOf(t *testing.T, family model.Family) string {
	t.Helper()
	golden, err := os.ReadFile("testdata/everything.txt")
	if err != nil {
		t.Fatal(err)
	}
	if family == model.IPv4 {
		return string(golden)
	}
	return strings.NewReplacer(
		"table ip ", "table ip6 ", "ipv4_addr", "ipv6_addr", "dnat ip to", "dnat ip6 to",
		"ip saddr", "ip6 saddr", "ip daddr", "ip6 daddr",
		"10.96.0.1 ", "fd00:10:96::1 ", "203.0.113.5", "2001:db8:5::5", "10.244.0.2", "fd00:10:244::2", "192.0.2.7", "2001:db8::7",
		"172.18.0.3", "fd00:172:18::3", "10.244.0.0/16", "fd00:10:244::/56", "10.96.0.0/12", "fd00:10:96::/108",
		"127.0.0.0/8", "::1",
		"198.51.100.64 . 198.51.100.127", "2001:db8:40:: . 2001:db8:7f:ffff:ffff:ffff:ffff:ffff",
		"255.255.255.192", "ffff:ffff:ffc0::", "0.0.0.63", "::3f:ffff:ffff:ffff:ffff:ffff",
	).Replace(string(golden))
}

func TestEverythingIsListedByNFTAsIntended(t *testing.T) {
	for _, family := range model.Families {
		t.Run(family.String(), func(t *testing.T) {
			namespace := netns.New(t)
			commit(t, dial(t, namespace, Options{}), everything(family))
			if diff := cmp.Diff(goldenOf(t, family), namespace.NFT("-n", "list", "ruleset")); diff != "" {
				t.Errorf("nft's listing (-want +got):\n%s", diff)
			}
			if got := countMapUpdates(t, listedJSON(t, namespace)); got != 2 {
				t.Errorf("nft -j lists %d rules that change a map, want 2", got)
			}
		})
	}
}

func TestTheListingLoadsWithNFTIntoTheSameRuleset(t *testing.T) {
	for _, family := range model.Families {
		t.Run(family.String(), func(t *testing.T) {
			namespace, other := netns.New(t), netns.New(t)
			commit(t, dial(t, namespace, Options{}), everything(family))
			other.Load(namespace.NFT("list", "ruleset"))
			checkSameRuleset(t, other, namespace, family)
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
			namespace, other := netns.New(t), netns.New(t)
			set.Name = "shape"
			commit(t, dial(t, namespace, Options{}), emptyMaps(model.IPv4, set))
			word := map[bool]string{true: "map", false: "set"}[set.IsMap()]
			want := "table ip vicinity {\n\t" + word + " shape {\n\t\t" + text + "\n\t}\n}\n"
			if diff := cmp.Diff(want, namespace.NFT("list", "ruleset")); diff != "" {
				t.Errorf("nft's listing (-want +got):\n%s", diff)
			}
			other.Load(want)
			checkSameRuleset(t, other, namespace, model.IPv4)
		})
	}
}
