package explain

import (
	"slices"

	"github.com/vicinity-proxy/vicinity/pkg/model"
)

// maxTypos is how many letters may differ between a name and the one that was probably meant.
const maxTypos = 3

// Nearest returns the name that was probably meant by one that does not exist: the same name in another namespace, or
// one that differs by a few letters. The first of the equally near names wins.
func Nearest(meant model.ObjectName, existing []model.ObjectName) (model.ObjectName, bool) {
	var nearest model.ObjectName
	least := maxTypos + 1
	for _, name := range slices.SortedFunc(slices.Values(existing), model.ObjectName.Compare) {
		if typos := typosBetween(meant, name); typos < least {
			nearest, least = name, typos
		}
	}
	return nearest, least <= maxTypos
}

func typosBetween(meant, name model.ObjectName) int {
	if meant.Name == name.Name && meant.Namespace != name.Namespace {
		return 1
	}
	return editDistance(meant.Namespace, name.Namespace) + editDistance(meant.Name, name.Name)
}

// editDistance is Levenshtein's: how many letters must be inserted, removed or replaced to turn a into b.
func editDistance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			replaced := diagonal
			if a[i] != b[j] {
				replaced++
			}
			diagonal = row[j+1]
			row[j+1] = min(replaced, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
