package property

import "github.com/fairlead/fairlead/internal/kernel/nft"

// foreignHandle returns another program's handle on the same model.
func foreignHandle(k *nft.Fake) nft.Kernel { return k.Neighbour() }
