package rules

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/vicinity-proxy/vicinity/pkg/policy"
)

// invalidKeys finds violations of one rule of package policy in the list of topology keys.
func invalidKeys(rule policy.Rule) func(*subject) []Violation {
	return func(s *subject) (violations []Violation) {
		for _, err := range s.keyErrors {
			if err.Rule == rule {
				violations = append(violations, listViolation(err, s.keysText, policy.TopologyKeysAnnotation))
			}
		}
		return violations
	}
}

// listViolation returns a violation in a list of topology keys, or of clients, that is in an annotation.
func listViolation(err policy.EntryError, text, key string) Violation {
	value, count := string(err.Rule)+" "+err.Entry, countEntries(text)
	if err.Rule == policy.AtMostMaxKeys || err.Rule == policy.AtMostMaxClients {
		value = strconv.Itoa(count)
	}
	return violationOf(listError(err, count, annotation(key)), value, text)
}

// parseKeys parses a list of topology keys.
func parseKeys(text string) (keys []policy.Key, errs policy.EntryErrors) {
	keys, err := policy.ParseKeys(text)
	errors.As(err, &errs)
	return keys, errs
}

// listError returns an error about a list of count entries, with Kubernetes' own error types.
func listError(entryErr policy.EntryError, count int, path *field.Path) *field.Error {
	detail := entryErr.Cause + "; " + entryErr.Remedy
	switch entryErr.Rule {
	case policy.NotEmpty:
		if entryErr.Position > 0 {
			detail = fmt.Sprintf("entry %d %s", entryErr.Position, detail)
		}
		return field.Required(path, detail)
	case policy.AtMostMaxKeys:
		return tooMany(path, count, policy.MaxKeys, entryErr.Remedy)
	case policy.AtMostMaxClients:
		return tooMany(path, count, policy.MaxClients, entryErr.Remedy)
	case policy.Unique:
		return errorOf(field.ErrorTypeDuplicate, path, entryErr.Entry, detail)
	case policy.LabelKey, policy.ServiceName, policy.AnyNodeLast:
	}
	return errorOf(field.ErrorTypeInvalid, path, entryErr.Entry, detail)
}

func tooMany(path *field.Path, count, limit int, remedy string) *field.Error {
	err := field.TooMany(path, count, limit)
	err.Detail += "; " + remedy
	return err
}

func countEntries(text string) int { return strings.Count(text, ",") + 1 }
