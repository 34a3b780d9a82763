package explain

import "fmt"

// few is how many endpoints, and sentences, of one reason are told one by one.
const few = 3

// Condense makes the text of ports shorter: of endpoints that are left out for one reason it counts those of which the
// same is said, unless they are a few. It is for people; what machines read has all.
func Condense(ports []Port) {
	for i := range ports {
		port := &ports[i]
		grouped := group(port.Excluded)
		port.IsCondensed = len(grouped) < len(port.Excluded)
		port.Excluded = grouped
	}
}

// group returns endpoints by reason, in the order in which each comes first.
func group(excluded []Excluded) []Excluded {
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
		if of := byReason[reason]; len(of) > few {
			grouped = append(grouped, count(of)...)
		} else {
			grouped = append(grouped, of...)
		}
	}
	return grouped
}

// count returns the first few sentences about endpoints, with how many each is about, and how many the others are about.
func count(excluded []Excluded) []Excluded {
	var counted []Excluded
	numbers, at, others := []int{}, map[string]int{}, 0
	for _, e := range excluded {
		i, known := at[e.Message]
		switch {
		case known:
			numbers[i]++
			counted[i].Endpoint = fmt.Sprintf("%d endpoints", numbers[i])
		case len(counted) < few:
			at[e.Message] = len(counted)
			counted, numbers = append(counted, e), append(numbers, 1)
		default:
			others++
		}
	}
	if others > 0 {
		counted = append(counted, Excluded{fmt.Sprintf("%d more", others), excluded[0].Reason, "Likewise, with other values."})
	}
	return counted
}
