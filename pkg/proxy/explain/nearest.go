package explain

import (
	"fmt"
	"slices"
	"strings"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/policy"
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

// NotFound says that there is no Service of a name, or no port of it, in an origin, and what was probably meant.
func NotFound(cluster *model.Cluster, query Query, origin string) error {
	if query.Dialled.IsValid() {
		return fmt.Errorf("no Service in %s is reached at %s: it is neither a ClusterIP or external address with that port, nor a node port "+
			"on loopback or on an address that the Node names; the proxy has no part in a connection there", origin, query.Dialled)
	}
	if query.Service.Name == "" {
		return NoNamespace(query.Service.Namespace, cluster.ServiceNames(), origin)
	}
	if service := cluster.Service(query.Service); service != nil {
		return fmt.Errorf("service %s has no port %s; it has %s", query.Service, query.Port, portList(service))
	}
	if near, ok := Nearest(query.Service, cluster.ServiceNames()); ok {
		return fmt.Errorf("service %s not found in %s; did you mean %s?", query.Service, origin, near)
	}
	return fmt.Errorf("service %s not found in %s", query.Service, origin)
}

func portList(service *model.Service) string {
	var ports []string
	for _, port := range service.Ports {
		ports = append(ports, strings.TrimSpace(fmt.Sprintf("%s %d/%s", port.Name, port.Port, port.Protocol)))
	}
	return strings.Join(ports, ", ")
}

// NoNamespace says that there are no Services in a namespace, and which one was probably meant.
func NoNamespace(namespace string, existing []model.ObjectName, origin string) error {
	known := make([]string, 0, len(existing))
	for _, name := range existing {
		known = append(known, name.Namespace)
	}
	slices.Sort(known)
	return fmt.Errorf("there is no Service in the namespace %s of %s%s", namespace, origin, DidYouMean(namespace, known))
}

// DidYouMean ends a sentence about an unknown name with a similar known one; empty if there is none.
func DidYouMean(name string, known []string) string {
	if near := policy.Suggest(name, known...); near != "" {
		return fmt.Sprintf("; did you mean %s?", near)
	}
	return ""
}
