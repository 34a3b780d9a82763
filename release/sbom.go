package main

import (
	"bytes"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/hex"
	"fmt"
	"os"
	"runtime/debug"
	"strings"
	"time"

	"github.com/spdx/tools-golang/json"
	"github.com/spdx/tools-golang/spdx/v2/common"
	spdx "github.com/spdx/tools-golang/spdx/v2/v2_3"
)

// describePrograms writes an SBOM for each program, from the build information in the executable.
func (r release) describePrograms(programs []program) error {
	for _, p := range programs {
		info, err := buildinfo.ReadFile(r.path(p.file))
		if err != nil {
			return fmt.Errorf("read the build info of %s: %w", p.file, err)
		}
		content, err := os.ReadFile(r.path(p.file))
		if err != nil {
			return fmt.Errorf("read %s: %w", p.file, err)
		}
		sum := sha256.Sum256(content)
		var text bytes.Buffer
		if err := json.Write(r.document(p.file, hex.EncodeToString(sum[:]), info), &text, json.Indent("  ")); err != nil {
			return fmt.Errorf("encode the SBOM of %s: %w", p.file, err)
		}
		if err := os.WriteFile(r.path(p.file+".spdx.json"), text.Bytes(), 0o644); err != nil {
			return fmt.Errorf("write the SBOM of %s: %w", p.file, err)
		}
	}
	r.step("wrote the SBOMs")
	return nil
}

// noAssertion is the value of fields that SPDX requires and for which there is nothing to state.
const noAssertion = "NOASSERTION"

// document returns the SPDX document of a program: the program, and the modules and the standard library that it
// contains.
func (r release) document(file, sum string, info *debug.BuildInfo) *spdx.Document {
	document := &spdx.Document{
		SPDXVersion:       spdx.Version,
		DataLicense:       spdx.DataLicense,
		SPDXIdentifier:    "DOCUMENT",
		DocumentName:      file,
		DocumentNamespace: fmt.Sprintf("%s/releases/download/%s/%s.spdx.json", source, r.version, file),
		CreationInfo: &spdx.CreationInfo{
			Creators: []common.Creator{{CreatorType: "Organization", Creator: "Vicinity"}, {CreatorType: "Tool", Creator: "make release"}},
			Created:  r.created.Format(time.RFC3339),
		},
	}
	mainPackage := newPackage("Program", info.Main.Path, r.version)
	mainPackage.PackageFileName = file
	mainPackage.PackageLicenseDeclared = license
	mainPackage.PackageChecksums = []common.Checksum{{Algorithm: common.SHA256, Value: sum}}
	document.Packages = []*spdx.Package{mainPackage, newPackage("Go", "stdlib", strings.TrimPrefix(info.GoVersion, "go"))}
	for i, module := range info.Deps {
		if module.Replace != nil {
			module = module.Replace
		}
		id := common.ElementID(fmt.Sprintf("Module-%d", i+1))
		document.Packages = append(document.Packages, newPackage(id, module.Path, module.Version))
	}
	document.Relationships = []*spdx.Relationship{relation("DOCUMENT", common.TypeRelationshipDescribe, mainPackage.PackageSPDXIdentifier)}
	for _, pkg := range document.Packages[1:] {
		document.Relationships = append(document.Relationships,
			relation(mainPackage.PackageSPDXIdentifier, common.TypeRelationshipContains, pkg.PackageSPDXIdentifier))
	}
	return document
}

func newPackage(id common.ElementID, path, version string) *spdx.Package {
	return &spdx.Package{
		PackageName:             path,
		PackageSPDXIdentifier:   id,
		PackageVersion:          version,
		PackageDownloadLocation: noAssertion,
		PackageLicenseConcluded: noAssertion,
		PackageLicenseDeclared:  noAssertion,
		PackageCopyrightText:    noAssertion,
		PackageExternalReferences: []*spdx.PackageExternalReference{{
			Category: common.CategoryPackageManager, RefType: common.TypePackageManagerPURL, Locator: "pkg:golang/" + path + "@" + version,
		}},
	}
}

func relation(from common.ElementID, kind string, to common.ElementID) *spdx.Relationship {
	return &spdx.Relationship{
		RefA: common.MakeDocElementID("", string(from)), RefB: common.MakeDocElementID("", string(to)), Relationship: kind,
	}
}
