package main

import (
	"context"
	"errors"
)

func (r *rig) sweep(context.Context, int, bool) error { return errors.New("later") }
