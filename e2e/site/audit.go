package site

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
)

// Request is a request in the audit log (k8s.io/apiserver/pkg/apis/audit/v1), with the fields that tests need.
type Request struct {
	Verb           string
	RequestURI     string
	User           struct{ Username string }
	ObjectRef      *struct{ APIGroup, Resource, Namespace, Name, Subresource string }
	ResponseStatus struct{ Code int }
	Annotations    map[string]string
}

// Audited returns the requests in the audit log so far. The last one may be missing, because the API server may still
// be writing it.
func (s *Site) Audited() ([]Request, error) {
	file, err := os.Open(s.auditLog())
	if err != nil {
		return nil, err
	}
	defer file.Close()
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 1<<24)
	var all []Request
	var decodeErr error
	for lines.Scan() {
		if decodeErr != nil {
			return nil, fmt.Errorf("read the audit log: %w", decodeErr)
		}
		var request Request
		if decodeErr = json.Unmarshal(lines.Bytes(), &request); decodeErr == nil {
			all = append(all, request)
		}
	}
	return all, lines.Err()
}

func (s *Site) auditLog() string { return filepath.Join(s.dir, "audit.log") }
