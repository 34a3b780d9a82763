//go:build linux

package ruleset_test

import (
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/ruleset"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/netns"
)

// TestNFTLoadsAndListsWhatIsPrinted: the kernel accepts the text, and nft lists the same. The listing can be loaded
// again.
func TestNFTLoadsAndListsWhatIsPrinted(t *testing.T) {
	printed := text(t, goldenTables(t))
	namespace, another := netns.New(t), netns.New(t)
	namespace.Load(printed)
	listing := namespace.NFT("-T", "list", "ruleset")
	if diff := cmp.Diff(blocks(printed), blocks(listing)); diff != "" {
		t.Errorf("nft list ruleset (-printed +listed):\n%s", diff)
	}
	another.Load(listing)
	if diff := cmp.Diff(blocks(listing), blocks(another.NFT("-T", "list", "ruleset"))); diff != "" {
		t.Errorf("the listing, loaded and listed (-first +second):\n%s", diff)
	}
}

// TestNFTLoadsTheTablesOfEveryConfiguration, with Services of all kinds, and ports of all size classes, with and
// without dedicated maps.
func TestNFTLoadsTheTablesOfEveryConfiguration(t *testing.T) {
	for name, test := range configurations {
		t.Run(name, func(t *testing.T) {
			config := test.config
			config.Families = model.Families
			var tables ruleset.Tables
			plain := broad(200, 40).Ports[0]
			plain.ID.Service = serviceName("plain")
			for i := range plain.Frontends {
				plain.Frontends[i].Port = 81
			}
			services := append(someServices(), stickyBroad(), serviceOf(plain))
			for index, endpoints := range [][]netip.AddrPort{colliding(t, 2), endpoints(numbersUpTo(257)...), endpoints(numbersUpTo(4097)...)} {
				port := sticky(portWith(fmt.Sprint("size-", index), endpoints), time.Hour)
				port.Frontends[0].Addr = netip.AddrFrom4([4]byte{10, 97, 0, byte(index)})
				services = append(services, serviceOf(port))
			}
			_, plan := ruleset.PlanFullSync(config, services, ruleset.NodeState{ServiceCIDRs: test.serviceCIDRs}, nil)
			mustApply(t, &tables, plan.Batch)
			namespace := netns.New(t)
			namespace.Load(text(t, &tables))
			listing := namespace.NFT("-T", "list", "ruleset")
			if diff := cmp.Diff(blocks(text(t, &tables)), blocks(listing)); diff != "" {
				t.Errorf("nft list ruleset (-printed +listed):\n%s", diff)
			}
		})
	}
}

// TestNFTLoadsEveryStatement, each in a chain of its own.
func TestNFTLoadsEveryStatement(t *testing.T) {
	for _, family := range model.Families {
		namespace := netns.New(t)
		for name, test := range statementCases() {
			if _, ok := test.textIn(family); !ok {
				continue
			}
			printed := text(t, tablesWith(t, family, test.rule))
			namespace.Load(printed)
			listed := namespace.NFT("-T", "list", "ruleset")
			namespace.NFT("delete", "table", ruleset.Keyword(family), ruleset.TableName)
			if diff := cmp.Diff(normalizeBlock(triedRule(printed)), normalizeBlock(triedRule(listed))); diff != "" {
				t.Errorf("%s in %s (-printed +listed):\n%s", name, family, diff)
			}
		}
	}
}

// TestAnyNumberOfSlotsLoads, although the numbers of slots use all 32 bits.
func TestAnyNumberOfSlotsLoads(t *testing.T) {
	for _, slots := range []int{1, 2, ruleset.MaxLocalSlots, ruleset.MaxSlots} {
		t.Run(fmt.Sprintf("%d slots", slots), func(t *testing.T) {
			rule := ruleset.Rule{ruleset.RandomSlot{Slots: slots, First: ruleset.ClusterSlot}}
			namespace := netns.New(t)
			namespace.Load(text(t, tablesWith(t, model.IPv4, rule)))
			want := fmt.Sprintf("numgen random mod %d offset %d", slots, ruleset.ClusterSlot)
			if got := triedRule(namespace.NFT("-T", "list", "ruleset")); !strings.Contains(got, want) {
				t.Errorf("listed %q, want it to contain %q", got, want)
			}
		})
	}
}

// blocks makes listings comparable: a kernel lists sets and chains in the order of their creation, and elements in the
// order of a hash table.
func blocks(listing string) []string {
	var list []string
	for table := range strings.SplitSeq(listing, "table ") {
		family, objects, _ := strings.Cut(table, "{\n")
		for block := range strings.SplitSeq(objects, "\n\t}") {
			if block = strings.TrimSpace(block); block != "" && block != "}" {
				list = append(list, family+normalizeBlock(block))
			}
		}
	}
	slices.Sort(list)
	return list
}

// spellings are the same to nft, which lists the second of each pair, or either, depending on its version. The
// protocol that a reset needs and the family of a dnat follow from the rest; priorities have names in some hooks.
var spellings = strings.NewReplacer(
	"meta l4proto tcp reject with tcp reset", "reject with tcp reset", "dnat ip to", "dnat to", "dnat ip6 to", "dnat to",
	"priority dstnat;", "priority -100;", "priority srcnat;", "priority 100;",
	"size 65535 flags dynamic,timeout", "flags dynamic,timeout", // the kernel's own limit
)

var portAfterMap = regexp.MustCompile(`(map @\S+) : (\d+)`)

// normalizeBlock normalizes the spelling of a block, and sorts its elements.
func normalizeBlock(block string) string {
	before, elements, found := strings.Cut(block, "elements = {")
	if !found {
		return portAfterMap.ReplaceAllString(spellings.Replace(joinFields(block)), "$1:$2")
	}
	list := strings.Split(strings.TrimSuffix(strings.TrimSpace(elements), "}"), ",")
	for i := range list {
		list[i] = joinFields(list[i])
	}
	slices.Sort(list)
	return spellings.Replace(joinFields(before)) + "\n" + strings.Join(list, "\n")
}

func joinFields(text string) string { return strings.Join(strings.Fields(text), " ") }
