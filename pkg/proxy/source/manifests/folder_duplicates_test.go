package manifests

import (
	"testing"
)

func TestDuplicateInTwoFiles(t *testing.T) {
	f := newTestFolder(t)
	f.write("b.yaml", serviceYAML("web", "10.96.0.2"))
	f.write("c.yaml", serviceYAML("web", "10.96.0.3"))
	f.load()
	f.wantService("10.96.0.2")
	f.wantProblems(`c.yaml: Service default/web: metadata.name: Duplicate value: "web": also defined in b.yaml, whose version is active`)

	f.write("a.yaml", serviceYAML("web", "10.96.0.1"))
	f.load()
	f.wantService("10.96.0.2")
	f.wantProblems(`a.yaml: Service default/web: metadata.name: Duplicate value: "web": also defined in b.yaml, whose version is active`,
		`c.yaml: Service default/web: metadata.name: Duplicate value: "web": also defined in b.yaml, whose version is active`)

	f.write("b.yaml", serviceYAML("web", "10.96.0.22"))
	f.load()
	f.wantService("10.96.0.22")

	f.remove("a.yaml")
	f.remove("b.yaml")
	f.load()
	f.wantService("10.96.0.3")
	f.wantProblems()
}

func TestDuplicateInOneFile(t *testing.T) {
	f := newTestFolder(t)
	one, two := serviceYAML("web", "10.96.0.1"), serviceYAML("web", "10.96.0.2")
	const twice = `a.yaml: Service default/web: metadata.name: Duplicate value: "web": ` +
		`defined twice in this file; the other version is active`
	f.write("a.yaml", one+"---\n"+two)
	f.load()
	f.wantService("10.96.0.1")
	f.wantProblems(twice)
	f.write("a.yaml", two+"---\n"+one)
	f.load()
	f.wantService("10.96.0.1")
	f.wantProblems(twice)
	f.write("a.yaml", two)
	f.load()
	f.wantService("10.96.0.2")
	f.wantProblems()
}
