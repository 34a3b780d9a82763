package check

import (
	"bytes"
	"strings"

	"github.com/vicinity-proxy/vicinity/pkg/manifest"
	"github.com/vicinity-proxy/vicinity/pkg/policy"
	"github.com/vicinity-proxy/vicinity/pkg/webhook/rules"
)

// The types of objects that are read.
var (
	serviceType   = manifest.Type{APIVersion: "v1", Kind: "Service"}
	namespaceType = manifest.Type{APIVersion: "v1", Kind: "Namespace"}
	nodeType      = manifest.Type{APIVersion: "v1", Kind: "Node"}
)

// Files collects the objects in files. Nothing is checked before all files are read: a Node or a Namespace may come
// last.
type Files struct {
	exclude      []string // see New
	objects      []object
	findings     []finding      // errors while reading
	fileIndex    map[string]int // index by file, in the order in which they were read
	skipped      int            // number of objects
	skippedFiles []skippedFile  // in the order in which they were read
	isSkipped    map[string]bool
	nodes        *rules.NodeLabels // nil without a Node
	services     serviceNames
	optedOut     map[string]bool // the Namespaces whose Services are not checked
}

// New returns an empty set of files. Files that match a pattern will be skipped; see ValidGlob.
func New(exclude []string) *Files {
	return &Files{
		exclude: exclude, findings: []finding{}, fileIndex: map[string]int{}, skippedFiles: []skippedFile{}, isSkipped: map[string]bool{},
		services: serviceNames{}, optedOut: map[string]bool{},
	}
}

// object is a Service or a Namespace, or a patch of one.
type object struct {
	isPatch   bool
	location  location
	service   *rules.Service
	namespace *rules.Namespace
}

// location is a position in a file.
type location struct {
	file string
	part *manifest.Part // nil for a whole file
	// objectField is a field of the object whose values are under partField in the part; empty if the part is the object
	// itself.
	objectField, partField string
}

// template is the start of placeholders of Helm and similar tools.
const template = "{{"

const renderFirst = "a template must be rendered first, as 'helm template' does"

// readText reads the objects of a file.
func (f *Files) readText(name string, text []byte) {
	f.assignIndex(name)
	for part := range manifest.Parts(manifest.FormatOfText(name, text), text, serviceType, namespaceType, nodeType) {
		loc := location{file: name, part: &part}
		switch {
		case part.Fault != nil && isJSONPatch(part.JSON):
			f.skip(name, classification{patchFile, "a patch that no rule checks"})
		case part.Fault != nil:
			explainTemplate(part.Fault, text)
			f.addError(loc, part.Fault.Field, part.Fault.Reason+excludeHint(loc))
		case part.Type == serviceType:
			f.readService(loc)
		case part.Type == namespaceType:
			f.readNamespace(loc)
		case part.Type == nodeType:
			f.readNode(loc)
		default:
			f.skipped++
		}
	}
}

// explainTemplate explains a parse error if the text contains a template, and sets the line to that of the first
// template on or after the reported line: if the parser has no line for an error, it reports the document's first
// line.
func explainTemplate(fault *manifest.ParseError, text []byte) {
	if fault.Line == 0 {
		return
	}
	lineNumber := 0
	for line := range bytes.Lines(text) {
		lineNumber++
		if bytes.Contains(line, []byte(template)) && lineNumber >= fault.Line {
			fault.Line = lineNumber
			break
		}
	}
	if bytes.Contains(text, []byte(template)) {
		reason, _, _ := strings.Cut(fault.Reason, ": map[") // Go's form of {{ .Values }}, which YAML parses as a mapping
		fault.Reason = reason + "; " + renderFirst
	}
}

// excludeHint returns a hint for a document that is not an object at all.
func excludeHint(loc location) string {
	if loc.file == stdinName || loc.part.JSON == nil || loc.part.Path != "" || loc.part.Type != (manifest.Type{}) {
		return ""
	}
	return "; a file that is not a manifest can be skipped with --exclude"
}

func (f *Files) readService(loc location) {
	service := new(rules.Service)
	if !f.decode(loc, service, serviceFields) || !f.isNamed(loc, &service.Metadata) {
		return
	}
	setDefaults(&service.Spec)
	if metadata := &service.Metadata; metadata.Name != "" {
		f.services[metadata.Namespace] = append(f.services[metadata.Namespace], metadata.Name)
	}
	f.objects = append(f.objects, object{location: loc, service: service})
}

// setDefaults sets the defaults on which rules depend. An API server does so before it calls webhooks.
func setDefaults(spec *rules.ServiceSpec) {
	const (
		clusterIP, nodePort, loadBalancer, externalName = "ClusterIP", "NodePort", "LoadBalancer", "ExternalName"

		cluster = "Cluster"
	)
	if spec.Type == "" {
		spec.Type = clusterIP
	}
	if spec.SessionAffinity == "" {
		spec.SessionAffinity = "None"
	}
	if spec.InternalTrafficPolicy == "" && spec.Type != externalName {
		spec.InternalTrafficPolicy = cluster
	}
	if spec.ExternalTrafficPolicy == "" && (spec.Type == nodePort || spec.Type == loadBalancer) {
		spec.ExternalTrafficPolicy = cluster
	}
}

func (f *Files) readNamespace(loc location) {
	var namespace rules.Namespace
	if !f.decode(loc, &namespace, namespaceFields) || !f.isNamed(loc, &namespace.Metadata) {
		return
	}
	if isOptedOut(&namespace.Metadata) {
		f.optedOut[namespace.Metadata.Name] = true
	}
	f.objects = append(f.objects, object{location: loc, namespace: &namespace})
}

// serviceNames are the names of the Services in the files, by Namespace. Nothing is known about a Namespace without
// any.
type serviceNames map[string][]string

// otherServices are the Services in the files, for the check of one of them. If it is the only one in its Namespace,
// nothing is known about others there.
type otherServices struct {
	all  serviceNames
	self string // its Namespace
}

// Names returns the Services of a Namespace, if the files have any.
func (o otherServices) Names(namespace string) (names []string, known bool) {
	names, known = o.all[namespace]
	return names, known && (namespace != o.self || len(names) > 1)
}

// readNode reads the labels of a Node. No rule checks Nodes here.
func (f *Files) readNode(loc location) {
	var node struct {
		Metadata rules.Metadata `json:"metadata"`
	}
	if !f.decode(loc, &node, nil) || !f.isNamed(loc, &node.Metadata) {
		return
	}
	if f.nodes == nil {
		f.nodes = rules.NewNodeLabels()
	}
	f.nodes.Put(node.Metadata.Name, node.Metadata.Labels)
	f.skipped++
}

// decode decodes an object and records errors. It reports whether the object can be checked. Unknown fields matter only
// if they are similar to a known one.
func (f *Files) decode(loc location, into any, known []knownField) bool {
	isReadable := true
	for _, fault := range loc.part.Decode(into) {
		switch fault.Reason {
		case manifest.UnknownField:
			if reason := unknownFieldError(fault.Field, known); reason != "" {
				f.addError(loc, fault.Field, reason)
			}
		case manifest.DuplicateField:
			f.addError(loc, fault.Field, fault.Reason)
		default:
			f.addTypeError(loc, fault)
			isReadable = false
		}
	}
	return isReadable
}

// isNamed reports whether an object has a name without placeholders, and otherwise records an error.
func (f *Files) isNamed(loc location, metadata *rules.Metadata) bool {
	if metadata.Name == "" && metadata.GenerateName == "" {
		f.addError(loc, "metadata.name", "Required value")
		return false
	}
	for _, field := range []struct{ path, value string }{
		{"metadata.name", metadata.Name}, {"metadata.generateName", metadata.GenerateName}, {"metadata.namespace", metadata.Namespace},
	} {
		if strings.Contains(field.value, template) {
			f.addError(loc, field.path, renderFirst)
			return false
		}
	}
	return true
}

// assignIndex assigns an index to a file, unless it has one.
func (f *Files) assignIndex(file string) {
	if _, counted := f.fileIndex[file]; !counted {
		f.fileIndex[file] = len(f.fileIndex)
	}
}

func isOptedOut(metadata *rules.Metadata) bool {
	return metadata.Labels[policy.AdmissionLabel] == policy.AdmissionDisabled
}
