package endure_test

import (
	"bytes"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/vicinity-proxy/vicinity/pkg/testkit/must"
)

// tables returns our tables as nft lists them, a block for each set and chain, without what history leaves: the order
// of sets, chains, elements and slots, the clients that are remembered, and who the tables' owner is.
func (s *town) tables() []string {
	s.t.Helper()
	listing, err := s.run("nft", "-n", "list", "ruleset")
	must.Succeed(s.t, err)
	return blocksOf(listing)
}

// rendered returns the tables that `proxy render` prints for the manifests, as nft lists them once it has loaded them
// elsewhere.
func (s *town) rendered() []string {
	s.t.Helper()
	text, err := exec.Command(s.program, append([]string{"render", "--node", s.node.Name}, s.state()...)...).Output()
	must.Succeed(s.t, err)
	load := exec.Command("nft", "-f", "-")
	load.Stdin = bytes.NewReader(text)
	_, err = s.outside.Run(load)
	must.Succeed(s.t, err)
	listing, err := s.outside.Run(exec.Command("nft", "-n", "list", "ruleset"))
	must.Succeed(s.t, err)
	_, err = s.outside.Run(exec.Command("nft", "flush", "ruleset"))
	must.Succeed(s.t, err)
	return blocksOf(listing)
}

func blocksOf(listing string) []string {
	listing = numbers.ReplaceAllString(shards.ReplaceAllString(listing, "$1-shard"), "number")
	var blocks, numbered []string
	for table := range strings.SplitSeq(listing, "\n}\n") {
		if head, objects, _ := strings.Cut(strings.TrimSpace(table), "\n"); head != "" {
			head, _, _ = strings.Cut(head, " {")
			for block := range strings.SplitSeq(ownership.ReplaceAllString(objects, ""), "\n\n") {
				if strings.HasPrefix(strings.TrimSpace(block), "map numbered") { // which of the two maps is a matter of chance
					numbered = append(numbered, strings.Split(head+"\n"+normalized(block), "\n")...)
					continue
				}
				blocks = append(blocks, head+"\n"+normalized(block))
			}
		}
	}
	slices.Sort(numbered)
	blocks = append(blocks, strings.Join(numbered, "\n"))
	slices.Sort(blocks)
	return blocks
}

var (
	// ownership is the line that says who may change a table. nft 1.0.6 has no word for a table that outlives its owner.
	ownership = regexp.MustCompile(`(?m)^\tflags ?(owner)?\n`)
	// slot is the last part of the key of an endpoint.
	slot = regexp.MustCompile(` \. fd00:[0-9a-f]+ : `)
	// numbers are those of session affinity, and the classes that lead to its chains; shards are what the names of its maps
	// and chains end in.
	numbers = regexp.MustCompile(`\bf[0-47][0-9a-f]{2}:[0-9a-f]+\b`)
	shards  = regexp.MustCompile(`\b(affinity|sticky-\d+)-\d+\b`)
	// remembered are the maps that packets fill.
	remembered = regexp.MustCompile(`^\s*map affinity-`)
)

// normalized is a listed set or chain, without what history leaves in it.
func normalized(block string) string {
	head, elements, found := strings.Cut(strings.TrimRight(block, "\n"), "elements = { ")
	if !found {
		return strings.TrimSpace(block)
	}
	if remembered.MatchString(head) {
		return strings.TrimSpace(head) + "\n\t}"
	}
	elements, rest, _ := strings.Cut(elements, " }")
	list := strings.Split(slot.ReplaceAllString(elements, " : "), ",")
	for i := range list {
		list[i] = strings.TrimSpace(list[i])
	}
	slices.Sort(list)
	return strings.TrimSpace(head) + "\n" + strings.Join(list, "\n") + rest
}

// awaitTables waits until the tables are right.
func (s *town) awaitTables(want []string, atMost time.Duration) {
	s.t.Helper()
	for began := time.Now(); ; {
		got := s.tables()
		switch {
		case cmp.Equal(want, got):
			return
		case time.Since(began) > atMost:
			s.t.Fatalf("after %s the tables are still others (-want +got):\n%s", atMost, cmp.Diff(want, got))
		}
	}
}

// likeAFreshStart checks that the tables are those that a proxy writes which finds none.
func (s *town) likeAFreshStart(args ...string) {
	s.t.Helper()
	got := s.tables()
	_, err := s.run(s.program, "cleanup")
	must.Succeed(s.t, err)
	fresh := s.start(args...)
	fresh.awaitSync()
	want := s.tables()
	if len(want) < 2*20 {
		s.t.Errorf("a fresh proxy writes only %q", want)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		s.t.Errorf("the tables are not those of a fresh start (-fresh +got):\n%s", diff)
	}
	fresh.kill()
}
