package policy

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/validate/content"
)

// MaxClients is how many Services may be another one's clients: each of them makes work for every proxy.
const MaxClients = 8

// ParseClients reads a comma-separated list of Services, each as "namespace/name". Spaces around one mean nothing.
// namespace is that of the Service with the annotation, which errors propose where none is written.
//
// There are 1 to MaxClients, none twice. The error is an EntryErrors that names every entry at fault.
func ParseClients(value, namespace string) ([]string, error) {
	if strings.TrimSpace(value) == "" {
		return nil, EntryErrors{{
			Rule:   NotEmpty,
			Cause:  "the list of clients is empty",
			Remedy: `list Services, such as "ingress/nginx, shop/frontend", or remove the annotation`,
		}}
	}
	if count := strings.Count(value, ",") + 1; count > MaxClients {
		return nil, EntryErrors{{
			Rule:   AtMostMaxClients,
			Cause:  fmt.Sprintf("the list has %d clients, and at most %d are allowed", count, MaxClients),
			Remedy: "name those that ask most",
		}}
	}
	var errs EntryErrors
	var clients []string
	for i, entry := range strings.Split(value, ",") {
		client := strings.TrimSpace(entry)
		if err, found := checkClient(client, clients, namespace); found {
			err.Entry, err.Position = client, i+1
			errs = append(errs, err)
		}
		clients = append(clients, client)
	}
	if len(errs) > 0 {
		return nil, errs
	}
	return clients, nil
}

// checkClient returns the first rule that an entry breaks, given those before it.
func checkClient(client string, earlier []string, ownNamespace string) (EntryError, bool) {
	if client == "" {
		return EntryError{Rule: NotEmpty, Cause: "is empty", Remedy: "remove the extra comma, or write the missing Service"}, true
	}
	if position := slices.Index(earlier, client); position >= 0 {
		return EntryError{
			Rule:   Unique,
			Cause:  fmt.Sprintf("is the same Service as entry %d", position+1),
			Remedy: "list each Service once",
		}, true
	}
	if isServiceName(client) {
		return EntryError{}, false
	}
	err := EntryError{Rule: ServiceName, Cause: "is not the namespace and name of a Service", Remedy: `write it as "shop/frontend"`}
	if !strings.Contains(client, "/") {
		err.Cause = "lacks the namespace of the Service"
	}
	if meant := meantClient(client, ownNamespace); meant != "" {
		err.Remedy = fmt.Sprintf("did you mean %q?", meant)
	} else if strings.ContainsAny(client, "; \t\n[]\"'|") {
		err.Remedy = "separate Services with commas, and put neither quotes nor brackets around them"
	}
	return err, true
}

// isServiceName reports whether a text is "namespace/name".
func isServiceName(text string) bool {
	namespace, name, found := strings.Cut(text, "/")
	return found && len(content.IsDNS1123Label(namespace)) == 0 && len(content.IsDNS1123Label(name)) == 0
}

// meantClient is the Service that was probably meant: in upper case, by its DNS name, or without its namespace. Empty if
// nothing comes near.
func meantClient(text, ownNamespace string) string {
	const longest = 253
	if len(text) > longest {
		return ""
	}
	text = strings.ToLower(text)
	labels := strings.Split(text, ".")
	candidates := []string{text, ownNamespace + "/" + text}
	if len(labels) == 2 || len(labels) > 2 && labels[2] == "svc" {
		candidates = append(candidates, labels[1]+"/"+labels[0])
	}
	for _, candidate := range candidates {
		if isServiceName(candidate) {
			return candidate
		}
	}
	return ""
}
