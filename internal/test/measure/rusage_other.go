//go:build !unix

package measure

import "time"

// clientCPU is the processor time of this process, which is not known here.
func clientCPU() time.Duration { return 0 }
