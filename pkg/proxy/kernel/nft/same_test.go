//go:build linux

package nft

import (
	"encoding/hex"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/ruleset"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/netns"
)

// checkListed checks that nft lists the result of a batch as the tables in memory print it, that it can list it in
// every form, and that nft itself, given the printed text, creates the same in the kernel.
func checkListed(t *testing.T, namespace *netns.Namespace, batch ruleset.Batch, families ...model.Family) {
	t.Helper()
	var tables ruleset.Tables
	if err := tables.Apply(batch); err != nil {
		t.Fatalf("the tables in memory: %v", err)
	}
	var printed strings.Builder
	if err := tables.Print(&printed); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(normalize(printed.String()), normalize(namespace.NFT("-T", "list", "ruleset"))); diff != "" {
		t.Errorf("nft's listing differs from the printed text (-printed +listed):\n%s", diff)
	}
	if diff := cmp.Diff(normalizeNumbers(printed.String()), normalizeNumbers(namespace.NFT("-n", "list", "ruleset"))); diff != "" {
		t.Errorf("nft -n's listing differs from the printed text (-printed +listed):\n%s", diff)
	}
	other := netns.New(t)
	other.Load(printed.String())
	checkSameRuleset(t, other, namespace, families...)
}

// checkSameRuleset checks that two namespaces hold the same: nft itself loaded a text into one, and this package wrote
// the same tables into the other.
func checkSameRuleset(t *testing.T, loaded, written *netns.Namespace, families ...model.Family) {
	t.Helper()
	if diff := cmp.Diff(sortedJSON(t, loaded), sortedJSON(t, written)); diff != "" {
		t.Errorf("nft -j: our objects differ from nft's own (-nft +ours):\n%s", diff)
	}
	const expressions = "--debug=netlink"
	if diff := cmp.Diff(comparableExpressions(loaded.NFT(expressions, "list", "ruleset")),
		comparableExpressions(written.NFT(expressions, "list", "ruleset"))); diff != "" {
		t.Errorf("our expressions differ from nft's own (-nft +ours):\n%s", diff)
	}
	for _, family := range families {
		if diff := cmp.Diff(setsInKernel(t, loaded, family), setsInKernel(t, written, family)); diff != "" {
			t.Errorf("our declarations of sets differ from nft's own (-nft +ours):\n%s", diff)
		}
	}
}

// setsInKernel returns the kernel's attributes of each set of our table, by the set's name, in hexadecimal.
func setsInKernel(t *testing.T, namespace *netns.Namespace, family model.Family) map[string]map[uint16]string {
	t.Helper()
	const setHandle = 16 // NFTA_SET_HANDLE, which counts up
	sets := map[string]map[uint16]string{}
	err := dial(t, namespace, Options{}).query(t.Context(), func(m *messages) {
		m.beginNFT(unix.NFT_MSG_GETSET, unix.NLM_F_DUMP, nfproto(family))
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
	if err != nil || len(sets) == 0 {
		t.Fatalf("read sets: got %d, %v", len(sets), err)
	}
	return sets
}

// comparableExpressions returns the expressions and elements in nft's output for debugging, without the listing that
// follows them. It omits what may differ between equivalent rulesets: which register holds a value, the numbers of
// rules, that nft repeats a single address and port as the end of a range, that it begins a set of ranges with an end
// that has no start, that it marks a range as having no end, and the order in a hash table.
func comparableExpressions(listing string) []string {
	var lines []string
	for line := range strings.Lines(listing) {
		if strings.HasPrefix(line, "table ") {
			break
		}
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
		case endWithoutStart.MatchString(line):
			continue
		case strings.Contains(line, "userdata"):
			words = words[:slices.Index(words, "userdata")]
		}
		lines = append(lines, strings.Join(words, " "))
	}
	sortRuns(lines, func(line string) bool { return strings.HasPrefix(line, "element ") })
	return lines
}

// endWithoutStart is the element with which nft begins a set of ranges that does not contain the lowest address: an end
// without a start.
var endWithoutStart = regexp.MustCompile(`^\s*element( 00000000)+\s+: 1 \[end\]`)

// sortRuns sorts the lines of each run of matching lines: the elements of a set, in the order of the kernel's hash
// table.
func sortRuns(lines []string, isMatch func(string) bool) {
	for from := 0; from < len(lines); from++ {
		to := from
		for to < len(lines) && isMatch(lines[to]) {
			to++
		}
		slices.Sort(lines[from:to])
		from = max(from, to-1)
	}
}

var (
	elementsOfSet = regexp.MustCompile(`elements = \{[^}]*\}`)
	portAfterMap  = regexp.MustCompile(`(map @\S+) : (\d+)`)
	// spellings are pairs that mean the same to nft. The protocol that a reset needs and the family of a dnat follow from
	// the rest; priorities have names in some hooks; the size is the kernel's own limit of a set that packets fill; there
	// is no empty line between tables.
	spellings = strings.NewReplacer(
		"meta l4proto tcp reject with tcp reset", "reject with tcp reset", "dnat ip to", "dnat to", "dnat ip6 to", "dnat to",
		"priority dstnat;", "priority -100;", "priority srcnat - 1;", "priority 99;", "\t\tsize 65535\n", "",
		"}\n\ntable", "}\ntable",
	)
)

// normalize normalizes the spelling of a listing's lines, and sorts the elements of each set. Sets, chains and rules
// keep their order.
func normalize(listing string) []string {
	listing = elementsOfSet.ReplaceAllStringFunc(listing, func(block string) string {
		list := strings.Split(strings.TrimSuffix(strings.TrimPrefix(block, "elements = {"), "}"), ",")
		for i := range list {
			list[i] = strings.TrimSpace(list[i])
		}
		slices.Sort(list)
		return "elements:\n" + strings.Join(list, "\n")
	})
	return strings.Split(spellings.Replace(portAfterMap.ReplaceAllString(listing, "$1:$2")), "\n")
}
