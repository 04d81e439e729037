package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
)

// record is one line of the results. Exactly one of the parts is set.
type record struct {
	Subject string         `json:"subject"`
	N       int            `json:"services"`
	E       int            `json:"endpoints"`
	Cold    *startRecord   `json:"cold,omitempty"`
	Restart *startRecord   `json:"restart,omitempty"`
	Single  *singleRecord  `json:"single,omitempty"`
	Churn   *churnRecord   `json:"churn,omitempty"`
	Connect *connectRecord `json:"connect,omitempty"`
	Failed  string         `json:"failed,omitempty"`
}

// startRecord is a start up to the moment when the subject reports that it has synced and (cold) packets prove
// it.
type startRecord struct {
	SyncedSeconds  float64  `json:"syncedSeconds"`
	ReachedSeconds float64  `json:"reachedSeconds,omitempty"`
	CPU            cpuTime  `json:"cpuSeconds"`
	PeakMiB        float64  `json:"cgroupPeakMiB"`
	OtherBusy      float64  `json:"otherBusySeconds"` // of the machine, without subject and control plane
	Objects        *float64 `json:"objectsWritten,omitempty"`
	Reads          *float64 `json:"kernelReads,omitempty"`
	Probes         int      `json:"probes,omitempty"`
	ProbesLost     int      `json:"probesLost,omitempty"`
}

type singleRecord struct {
	CPUms       spread   `json:"cpuMs"`
	LatencyMs   spread   `json:"writeToDataPlaneMs"`
	WriteMs     spread   `json:"apiWriteMs"` // part of the latency that the API server took
	IdleMsPerS  float64  `json:"idleCpuMsPerSecond"`
	ObjectsEach *float64 `json:"objectsWrittenEach,omitempty"`
}

type churnRecord struct {
	Seconds         float64 `json:"seconds"`
	Changes, Late   int
	CPU             cpuTime `json:"cpuSeconds"`
	PeakMiB         float64 `json:"cgroupPeakMiB"`
	OtherBusy       float64 `json:"otherBusySeconds"`
	LatencyMs       spread  `json:"canaryMs"`
	Syncs           float64 `json:"syncs"`
	ProgrammedCount float64 `json:"networkProgrammingCount"`
	ProgrammedMean  float64 `json:"networkProgrammingMeanSeconds"`
}

type connectRecord map[string]connects

// spread summarizes a few samples.
type spread struct {
	N                       int
	Min, P50, P90, P99, Max float64
}

func newSpread(samples []float64) spread {
	if len(samples) == 0 {
		return spread{}
	}
	s := slices.Sorted(slices.Values(samples))
	at := func(p float64) float64 { return s[min(len(s)-1, int(p*float64(len(s))))] }
	return spread{N: len(s), Min: s[0], P50: at(.5), P90: at(.9), P99: at(.99), Max: s[len(s)-1]}
}

// sink keeps the records and writes each at once, so that an interrupted run loses none.
type sink struct {
	file    *os.File
	records []record
}

func newSink(path string) (*sink, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, err
	}
	f, err := os.Create(path)
	if err != nil {
		return nil, err
	}
	return &sink{file: f}, nil
}

func (s *sink) add(r record) error {
	b, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("encode record: %w", err)
	}
	fmt.Println(string(b))
	s.records = append(s.records, r)
	_, err = s.file.Write(append(b, '\n'))
	return err
}

func (s *sink) close() { s.file.Close() }
