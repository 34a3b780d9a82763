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

// Files is the content of the files. Nothing is checked before all of them are read: a Node or a Namespace may come
// last.
type Files struct {
	exclude    []string // see New
	objects    []object
	findings   []finding      // errors while reading
	files      map[string]int // index by file, in the order in which they were read
	passedOver int            // objects
	notRead    []skippedFile  // files
	isNotRead  map[string]bool
	nodes      *rules.NodeLabels // nil without a Node
	services   serviceNames
	optedOut   map[string]bool // the Namespaces whose Services are not checked
}

// New returns an empty set of files. Files that match a pattern will be skipped; see ValidGlob.
func New(exclude []string) *Files {
	return &Files{
		exclude: exclude, findings: []finding{}, files: map[string]int{}, notRead: []skippedFile{}, isNotRead: map[string]bool{},
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
	// from is a field of the object whose values are under the field to in the part; empty if the part is the object
	// itself.
	from, to string
}

// template is the start of placeholders of Helm and similar tools.
const template = "{{"

const renderFirst = "a template must be rendered first, as 'helm template' does"

// readText reads the objects of a file.
func (c *Files) readText(name string, text []byte) {
	c.number(name)
	for part := range manifest.Parts(manifest.FormatOfText(name, text), text, serviceType, namespaceType, nodeType) {
		at := location{file: name, part: &part}
		switch {
		case part.Fault != nil && isJSONPatch(part.JSON):
			c.skip(name, classification{patchFile, "a patch that no rule checks"})
		case part.Fault != nil:
			explainTemplate(part.Fault, text)
			c.addError(at, part.Fault.Field, part.Fault.Reason+noManifest(at))
		case part.Type == serviceType:
			c.readService(at)
		case part.Type == namespaceType:
			c.readNamespace(at)
		case part.Type == nodeType:
			c.readNode(at)
		default:
			c.passedOver++
		}
	}
}

// explainTemplate explains a parse error if there is a template before or on the reported line, and sets the line to
// that of the template. If the parser has no line for an error, it reports the document's first line.
func explainTemplate(fault *manifest.ParseError, text []byte) {
	if fault.Line == 0 {
		return
	}
	number := 0
	for line := range bytes.Lines(text) {
		number++
		if bytes.Contains(line, []byte(template)) && number >= fault.Line {
			fault.Line = number
			break
		}
	}
	if bytes.Contains(text, []byte(template)) {
		reason, _, _ := strings.Cut(fault.Reason, ": map[") // Go's form of {{ .Values }}, which YAML parses as a mapping
		fault.Reason = reason + "; " + renderFirst
	}
}

// noManifest returns a hint for a document that is not an object at all.
func noManifest(at location) string {
	if at.file == stdinName || at.part.JSON == nil || at.part.Path != "" || at.part.Type != (manifest.Type{}) {
		return ""
	}
	return "; a file that is not a manifest can be skipped with --exclude"
}

func (c *Files) readService(at location) {
	service := new(rules.Service)
	if !c.decode(at, service, serviceFields) || !c.isNamed(at, &service.Metadata) {
		return
	}
	setDefaults(&service.Spec)
	if metadata := &service.Metadata; metadata.Name != "" {
		c.services[metadata.Namespace] = append(c.services[metadata.Namespace], metadata.Name)
	}
	c.objects = append(c.objects, object{location: at, service: service})
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

func (c *Files) readNamespace(at location) {
	var namespace rules.Namespace
	if !c.decode(at, &namespace, namespaceFields) || !c.isNamed(at, &namespace.Metadata) {
		return
	}
	if isOptedOut(&namespace.Metadata) {
		c.optedOut[namespace.Metadata.Name] = true
	}
	c.objects = append(c.objects, object{location: at, namespace: &namespace})
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
func (b otherServices) Names(namespace string) (names []string, known bool) {
	names, known = b.all[namespace]
	return names, known && (namespace != b.self || len(names) > 1)
}

// readNode reads the labels of a Node. No rule checks Nodes here.
func (c *Files) readNode(at location) {
	var node struct {
		Metadata rules.Metadata `json:"metadata"`
	}
	if !c.decode(at, &node, nil) || !c.isNamed(at, &node.Metadata) {
		return
	}
	if c.nodes == nil {
		c.nodes = rules.NewNodeLabels()
	}
	c.nodes.Put(node.Metadata.Name, node.Metadata.Labels)
	c.passedOver++
}

// decode decodes an object and records errors. It reports whether the object can be checked. Unknown fields matter only
// if they are similar to a known one.
func (c *Files) decode(at location, into any, known []knownField) bool {
	isReadable := true
	for _, fault := range at.part.Decode(into) {
		switch fault.Reason {
		case manifest.UnknownField:
			if reason := unknownFieldError(fault.Field, known); reason != "" {
				c.addError(at, fault.Field, reason)
			}
		case manifest.DuplicateField:
			c.addError(at, fault.Field, fault.Reason)
		default:
			c.addTypeError(at, fault)
			isReadable = false
		}
	}
	return isReadable
}

// isNamed reports whether an object has a name without placeholders, and otherwise records an error.
func (c *Files) isNamed(at location, metadata *rules.Metadata) bool {
	if metadata.Name == "" && metadata.GenerateName == "" {
		c.addError(at, "metadata.name", "Required value")
		return false
	}
	for _, field := range []struct{ path, value string }{
		{"metadata.name", metadata.Name}, {"metadata.generateName", metadata.GenerateName}, {"metadata.namespace", metadata.Namespace},
	} {
		if strings.Contains(field.value, template) {
			c.addError(at, field.path, renderFirst)
			return false
		}
	}
	return true
}

// number assigns an index to a file, unless it has one.
func (c *Files) number(file string) {
	if _, counted := c.files[file]; !counted {
		c.files[file] = len(c.files)
	}
}

func isOptedOut(metadata *rules.Metadata) bool {
	return metadata.Labels[policy.AdmissionLabel] == policy.AdmissionDisabled
}
