package policy

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/validate/content"
)

// MaxClients is the maximum number of client Services of a Service. Each of them is work for every proxy.
const MaxClients = 8

// ParseClients parses a comma-separated list of Services, each as "namespace/name". Spaces around an entry are ignored.
// namespace is that of the annotated Service; for entries without a namespace, errors suggest that one.
//
// The list must have 1 to MaxClients entries, and no duplicates. The error is an EntryErrors with every invalid entry.
func ParseClients(value, namespace string) (clients []string, err error) {
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
			Remedy: "keep those with the most connections",
		}}
	}
	return parseClients(strings.Split(value, ","), namespace)
}

func parseClients(entries []string, serviceNamespace string) (clients []string, err error) {
	var errs EntryErrors
	for i, entry := range entries {
		client := strings.TrimSpace(entry)
		if err, found := checkClient(client, clients, serviceNamespace); found {
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

// checkClient returns the first rule that an entry breaks, given the entries before it.
func checkClient(client string, earlier []string, serviceNamespace string) (EntryError, bool) {
	if client == "" {
		return EntryError{Rule: NotEmpty, Cause: "is empty", Remedy: "remove the extra comma, or write the missing Service"}, true
	}
	if position := slices.Index(earlier, client); position >= 0 {
		return EntryError{
			Rule: Unique, Cause: fmt.Sprintf("is the same Service as entry %d", position+1), Remedy: "list each Service once",
		}, true
	}
	if isServiceName(client) {
		return EntryError{}, false
	}
	return serviceNameError(client, serviceNamespace), true
}

// serviceNameError returns the error for an entry that is not the name of a Service.
func serviceNameError(client, serviceNamespace string) EntryError {
	err := EntryError{Rule: ServiceName, Cause: "is not the namespace and name of a Service", Remedy: `write it as "shop/frontend"`}
	if resemblesMeasured(client) {
		err.Remedy = "did you mean the annotation " + DemandSourceAnnotation + "=" + Measured + "?"
		return err
	}
	if !strings.Contains(client, "/") {
		err.Cause = "lacks the namespace of the Service"
	}
	if suggestion := suggestClient(client, serviceNamespace); suggestion != "" {
		err.Remedy = fmt.Sprintf("did you mean %q?", suggestion)
	} else if strings.ContainsAny(client, "; \t\n[]\"'|") {
		err.Remedy = "separate Services with commas, and put neither quotes nor brackets around them"
	}
	return err
}

// resemblesMeasured reports whether Measured was probably meant: misspelled, or under a name that other programs use.
func resemblesMeasured(text string) bool {
	letters := lettersOf(text[:min(len(text), maxQuoted)])
	return !strings.Contains(text, "/") && (text == Measured || letters == "auto" || letters == "automatic" || Suggest(text, Measured) != "")
}

// isServiceName reports whether a text has the form "namespace/name".
func isServiceName(text string) bool {
	namespace, name, found := strings.Cut(text, "/")
	return found && len(content.IsDNS1123Label(namespace)) == 0 && len(content.IsDNS1123Label(name)) == 0
}

// suggestClient returns the Service that was probably meant: written in upper case, as its DNS name, or without its
// namespace. It returns "" if none is similar.
func suggestClient(text, serviceNamespace string) string {
	const longest = 253
	if len(text) > longest {
		return ""
	}
	text = strings.ToLower(text)
	labels := strings.Split(text, ".")
	candidates := []string{text, serviceNamespace + "/" + text}
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
