package endure_test

import (
	"bytes"
	"fmt"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/vicinity-proxy/vicinity/pkg/testkit/must"
)

// tables returns our tables as nft lists them, a block for each set and chain, without the parts that depend on
// history: the order of sets, chains, elements and slots, the clients with affinity, the numbers in their keys, and the
// owner of the tables.
func (s *setup) tables() []string {
	s.t.Helper()
	listing, err := s.run("nft", "-n", "list", "ruleset")
	must.Succeed(s.t, err)
	return blocksOf(listing)
}

// renderedTables returns the tables that `proxy render` prints for the manifests, as nft lists them after loading them in
// another namespace.
func (s *setup) renderedTables() []string {
	s.t.Helper()
	text, err := exec.Command(s.program, append([]string{"render", "--node", s.node.Name}, s.sourceFlags()...)...).Output()
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
	var blocks []string
	for table := range strings.SplitSeq(listing, "\n}\n") {
		if head, objects, _ := strings.Cut(strings.TrimSpace(table), "\n"); head != "" {
			head, _, _ = strings.Cut(head, " {")
			endpoints, numbered := endpointsIn(objects)
			blocks = append(blocks, head+"\nnumbered\n"+strings.Join(numbered, "\n"))
			for block := range strings.SplitSeq(ownership.ReplaceAllString(objects, ""), "\n\n") {
				blocks = append(blocks, head+"\n"+normalized(block, endpoints))
			}
		}
	}
	slices.Sort(blocks)
	return slices.Compact(blocks) // the number of ports in a shard depends on history, too
}

var (
	// ownership matches the line with the owner flag. nft 1.0.6 has no keyword for a table that outlives its owner.
	ownership = regexp.MustCompile(`(?m)^\tflags ?(owner)?\n`)
	// slot matches the last part of an endpoint's key.
	slot = regexp.MustCompile(` \. fd00:[0-9a-f]+ : `)
	// declarationOnly matches the maps of which only the declaration is compared: those that packets fill, and those of the endpoints'
	// numbers, whose endpoints are compared separately.
	declarationOnly = regexp.MustCompile(`^\s*map (affinity|numbered|numbered-collided) {`)
	// shard matches the suffix in the names of a map that packets fill, and of the chains that look up in it. The shard of
	// a Service port depends on the ports before it.
	shard = regexp.MustCompile(`\b(affinity|(?:nodeport-)?sticky-[0-9]+)-[0-9]+\b`)
	// numbers matches the number of a port with affinity, of one of its endpoints, or of the chain that updates the
	// affinity.
	numbers = regexp.MustCompile(`\bf([027])([0-9a-f]{2}):([0-9a-f]+)\b`)
	// numberedPort matches an element of the map from a frontend's port to its number.
	numberedPort = regexp.MustCompile(`\S+ \. [0-9]+ \. [0-9]+ : f0[0-9a-f]{2}:[0-9a-f]+\b`)
	// numbered matches an element of the map from a number to its endpoint.
	numbered = regexp.MustCompile(`\b([0-9]+) \. (f2[0-9a-f]{2}:[0-9a-f]+) : (\S+ \. [0-9]+)`)
)

// numbers returns all numbers that are used for affinity, with the ports and endpoints that they stand for.
func (s *setup) numbers() []string {
	s.t.Helper()
	listing, err := s.run("nft", "-n", "list", "ruleset")
	must.Succeed(s.t, err)
	all := numberedPort.FindAllString(listing, -1)
	all = append(all, numbered.FindAllString(listing, -1)...)
	slices.Sort(all)
	return all
}

// endpointsIn returns the endpoint of each number, and all numbered endpoints, sorted.
func endpointsIn(table string) (endpoints map[string]string, all []string) {
	endpoints = map[string]string{}
	for _, found := range numbered.FindAllStringSubmatch(table, -1) {
		endpoints[found[2]] = found[3]
		all = append(all, found[1]+" . "+found[3])
	}
	slices.Sort(all)
	return endpoints, all
}

// normalized returns a listed set or chain without the parts that depend on history.
func normalized(block string, endpoints map[string]string) string {
	head, elements, found := strings.Cut(strings.TrimRight(block, "\n"), "elements = { ")
	head = shard.ReplaceAllString(head, "$1")
	if !found {
		return strings.TrimSpace(head)
	}
	if declarationOnly.MatchString(head) {
		return strings.TrimSpace(head) + "\n\t}"
	}
	elements, rest, _ := strings.Cut(shard.ReplaceAllString(elements, "$1"), " }")
	elements = numbers.ReplaceAllStringFunc(elements, func(number string) string { return elementText(number, endpoints) })
	list := strings.Split(slot.ReplaceAllString(elements, " : "), ",")
	for i := range list {
		list[i] = strings.TrimSpace(list[i])
	}
	slices.Sort(list)
	list = slices.CompactFunc(list, func(a, b string) bool { return a == b && strings.HasPrefix(a, "class f7") }) // as above
	return strings.TrimSpace(head) + "\n" + strings.Join(list, "\n") + rest
}

// elementText returns the port, endpoint or chain of a number, without the shard.
func elementText(number string, endpoints map[string]string) string {
	switch parts := numbers.FindStringSubmatch(number); parts[1] {
	case "0":
		return "port"
	case "2":
		return "endpoint " + endpoints[number]
	default:
		low, _ := strconv.ParseUint(parts[3], 16, 16) // the expression matches only hexadecimal digits
		return fmt.Sprintf("class f7%s:%x", parts[2], low&^0x3e)
	}
}

// waitForTables waits until the tables are as wanted.
func (s *setup) waitForTables(want []string, timeout time.Duration) {
	s.t.Helper()
	for began := time.Now(); ; {
		got := s.tables()
		switch {
		case cmp.Equal(want, got):
			return
		case time.Since(began) > timeout:
			s.t.Fatalf("after %s the tables still differ (-want +got):\n%s", timeout, cmp.Diff(want, got))
		}
	}
}

// compareWithFreshStart checks that the tables are the same as those that a proxy writes when it finds none.
func (s *setup) compareWithFreshStart(args ...string) {
	s.t.Helper()
	got := s.tables()
	_, err := s.run(s.program, "cleanup")
	must.Succeed(s.t, err)
	fresh := s.start(args...)
	fresh.waitForSync()
	want := s.tables()
	if len(want) < 2*20 {
		s.t.Errorf("a fresh proxy writes only %q", want)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		s.t.Errorf("the tables are not those of a fresh start (-fresh +got):\n%s", diff)
	}
	fresh.kill()
}
