package explain

import (
	"fmt"

	"github.com/vicinity-proxy/vicinity/pkg/sanitize"
)

// maxListedPerReason is how many endpoints, and sentences, of one reason are listed one by one.
const maxListedPerReason = 3

// maxListed is the maximum number of endpoints in use that are all listed if many nodes are explained. If there are
// more, only maxListedPerReason are listed.
const maxListed = 10

// Condense makes the text of ports shorter: if more than a few endpoints are excluded for the same reason with the same
// sentence, it counts them. It does so with the endpoints in use, too, if many nodes are explained. It is for people;
// the output for machines lists all.
func Condense(ports []PortReport, manyNodes bool) {
	for i := range ports {
		port := &ports[i]
		grouped := groupByReason(port.Excluded)
		port.IsCondensed = !manyNodes && len(grouped) < len(port.Excluded)
		port.Excluded = grouped
		if manyNodes {
			port.Cluster.abbreviate(maxListedPerReason)
			if port.Local != nil {
				port.Local.abbreviate(maxListedPerReason)
			}
		}
	}
}

// abbreviate makes the text list only the first endpoints, as many as listed, if there are more than maxListed.
func (c *Choice) abbreviate(listed int) {
	if len(c.Endpoints) > maxListed {
		c.Listed = listed
	}
}

// groupByReason returns endpoints by reason, in the order in which the reasons first appear.
func groupByReason(excluded []Excluded) []Excluded {
	var reasons []string
	byReason := map[string][]Excluded{}
	for _, e := range excluded {
		if byReason[e.Reason] == nil {
			reasons = append(reasons, e.Reason)
		}
		byReason[e.Reason] = append(byReason[e.Reason], e)
	}
	grouped := make([]Excluded, 0, len(excluded))
	for _, reason := range reasons {
		if sameReason := byReason[reason]; len(sameReason) > maxListedPerReason {
			grouped = append(grouped, countBySentence(sameReason)...)
		} else {
			grouped = append(grouped, sameReason...)
		}
	}
	return grouped
}

// countBySentence returns the first few sentences, each with the number of its endpoints, and one number for all other sentences.
func countBySentence(excluded []Excluded) []Excluded {
	var counted []Excluded
	counts, index, others := []int{}, map[string]int{}, 0
	for _, e := range excluded {
		i, known := index[e.Message]
		switch {
		case known:
			counts[i]++
			counted[i].Endpoint = sanitize.Count(counts[i], "endpoint")
		case len(counted) < maxListedPerReason:
			index[e.Message] = len(counted)
			counted, counts = append(counted, e), append(counts, 1)
		default:
			others++
		}
	}
	if others > 0 {
		counted = append(counted, Excluded{fmt.Sprintf("%d more", others), excluded[0].Reason, "The same, with other values."})
	}
	return counted
}
