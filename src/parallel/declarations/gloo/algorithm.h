// Nothing of this header is used.
#pragma once
