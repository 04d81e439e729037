package main

import (
	"bytes"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"time"
)

// The types below are the part of SPDX 2.3 that the program writes.
type spdxDocument struct {
	Version       string             `json:"spdxVersion"`
	DataLicense   string             `json:"dataLicense"`
	ID            string             `json:"SPDXID"`
	Name          string             `json:"name"`
	Namespace     string             `json:"documentNamespace"`
	Creation      spdxCreation       `json:"creationInfo"`
	Packages      []spdxPackage      `json:"packages"`
	Relationships []spdxRelationship `json:"relationships"`
}

type spdxCreation struct {
	Created  string   `json:"created"`
	Creators []string `json:"creators"`
}

type spdxPackage struct {
	ID        string         `json:"SPDXID"`
	Name      string         `json:"name"`
	Version   string         `json:"versionInfo"`
	Download  string         `json:"downloadLocation"`
	Analyzed  bool           `json:"filesAnalyzed"`
	Concluded string         `json:"licenseConcluded"`
	Declared  string         `json:"licenseDeclared"`
	Copyright string         `json:"copyrightText"`
	Checksums []spdxChecksum `json:"checksums,omitempty"`
	Refs      []spdxRef      `json:"externalRefs"`
}

type spdxChecksum struct {
	Algorithm string `json:"algorithm"`
	Value     string `json:"checksumValue"`
}

type spdxRef struct {
	Category string `json:"referenceCategory"`
	Type     string `json:"referenceType"`
	Locator  string `json:"referenceLocator"`
}

type spdxRelationship struct {
	From string `json:"spdxElementId"`
	Type string `json:"relationshipType"`
	To   string `json:"relatedSpdxElement"`
}

// writeSBOM writes what is linked into b, as the linker recorded it in the binary itself, and the packages in
// beside.
func (r request) writeSBOM(name string, b binary, beside []deb) error {
	info, err := buildinfo.Read(bytes.NewReader(b.data))
	if err != nil {
		return fmt.Errorf("read what is linked into %s: %w", b.name, err)
	}
	text, err := json.MarshalIndent(r.sbom(name, b, info, beside), "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(r.out, name+".spdx.json"), append(text, '\n'), 0o644)
}

func (r request) sbom(name string, b binary, info *debug.BuildInfo, beside []deb) spdxDocument {
	sum := sha256.Sum256(b.data)
	digest := hex.EncodeToString(sum[:])
	program := newPackage(info.Main.Path, r.version)
	program.Declared = "Apache-2.0"
	program.Checksums = []spdxChecksum{{"SHA256", digest}}
	d := spdxDocument{Version: "SPDX-2.3", DataLicense: "CC0-1.0", ID: "SPDXRef-DOCUMENT", Name: name,
		Namespace: "https://github.com/fairlead/fairlead/spdx/" + name + "/" + digest, // must differ for each document
		Creation:  spdxCreation{Created: r.created.Format(time.RFC3339), Creators: []string{"Tool: fairlead-scripts-image"}},
		Packages:  []spdxPackage{program}, Relationships: []spdxRelationship{{"SPDXRef-DOCUMENT", "DESCRIBES", program.ID}}}
	linked := []spdxPackage{newPackage("stdlib", info.GoVersion)}
	for _, m := range info.Deps {
		if m.Replace != nil {
			m = m.Replace
		}
		linked = append(linked, newPackage(m.Path, m.Version))
	}
	for _, p := range linked {
		d.Packages = append(d.Packages, p)
		d.Relationships = append(d.Relationships, spdxRelationship{program.ID, "STATIC_LINK", p.ID})
	}
	for _, x := range beside {
		p := newPackage(x.name, x.version)
		p.ID, p.Checksums = "SPDXRef-deb-"+p.ID[len("SPDXRef-"):], []spdxChecksum{{"SHA256", x.sum}}
		p.Refs = []spdxRef{{"PACKAGE-MANAGER", "purl", "pkg:deb/debian/" + x.name + "@" + x.version + "?arch=" + x.arch}}
		d.Packages = append(d.Packages, p)
		d.Relationships = append(d.Relationships, spdxRelationship{program.ID, "DEPENDS_ON", p.ID})
	}
	return d
}

// newPackage describes a Go module. Licences are not guessed: THIRD_PARTY_NOTICES has their texts.
func newPackage(path, version string) spdxPackage {
	const unknown = "NOASSERTION"
	id := regexp.MustCompile(`[^A-Za-z0-9.-]`).ReplaceAllString(path, "-")
	return spdxPackage{ID: "SPDXRef-" + id, Name: path, Version: version, Download: unknown, Concluded: unknown, Declared: unknown, Copyright: unknown,
		Refs: []spdxRef{{"PACKAGE-MANAGER", "purl", "pkg:golang/" + path + "@" + version}}}
}
